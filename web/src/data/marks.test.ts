// @vitest-environment happy-dom
import { expect, test } from "vitest";
import { list, navigate, sharedParam } from "../address";
import { Marks } from "./marks";

const marks = new Marks(sharedParam("marked", list, []));

test("marks are in the address", () => {
  marks.value = ["a", "b"];
  expect(location.hash).toContain("marked=a,b");
  expect(marks.value).toEqual(["a", "b"]);
});

test("ten thousand are not, and are marked all the same", () => {
  const ids = Array.from({ length: 10_000 }, (_, index) => `run-${index}`);
  marks.value = ids;
  expect(location.hash).not.toContain("marked");
  expect(marks.value).toBe(ids);
  marks.replace(ids.slice(0, 2));
  expect(location.hash).toContain("marked=run-0,run-1");
});

test("an address that names runs counts more", () => {
  marks.value = Array.from({ length: 1000 }, (_, index) => `run-${index}`);
  navigate("/charts?marked=x");
  expect(marks.value).toEqual(["x"]);
});
