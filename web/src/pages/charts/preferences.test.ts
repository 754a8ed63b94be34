// @vitest-environment happy-dom
import { expect, it } from "vitest";
import { navigate } from "../../address";
import { foldedGroups } from "../../data/state";
import { preferences, toggleFolded } from "./preferences";

it("groups of runs that are folded leave the sections of the charts as they are, and the other way round", () => {
  navigate("/charts");
  foldedGroups.value = ["lr=0.001"];
  expect(preferences.value.folded).toEqual(["sys"]);
  toggleFolded("loss");
  expect(preferences.value.folded).toEqual(["sys", "loss"]);
  expect(foldedGroups.value).toEqual(["lr=0.001"]);
});
