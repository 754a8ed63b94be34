import { render } from "preact";
import { App } from "./app";
import { HttpSource } from "./data/http";
import { start } from "./data/state";
import "./theme.css";

start(new HttpSource());
const root = document.getElementById("board");
if (root) render(<App />, root);
