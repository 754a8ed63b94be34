import { render } from "preact";
import { App } from "./app";
import { HttpSource } from "./data/http";
import { start } from "./data/state";
import "./theme.css";

const WORTH_WAITING = 80; // milliseconds: to draw a page without what it shows would hold that up

start(new HttpSource());
const root = document.getElementById("board");
const soon = new Promise((resolve) => setTimeout(resolve, WORTH_WAITING));
Promise.race([window.linnetFirst, soon])
  .catch(() => {}) // whoever asks again says what is wrong
  .then(() => root && render(<App />, root));
