import { expect, test } from "vitest";
import { queryParts } from "./query";

const kinds = (text: string) =>
  queryParts(text)
    .filter((part) => part.kind !== "space")
    .map((part) => `${part.kind} ${part.text}`);

test("columns with their operator, values and joining words are told apart", () => {
  expect(kinds("loss<2 recipe:warm-start tag:baseline lr>=1e-3")).toEqual([
    "column loss<",
    "value 2",
    "column recipe:",
    "value warm-start",
    "column tag:",
    "value baseline",
    "column lr>=",
    "value 1e-3",
  ]);
  expect(kinds('(best(validation/loss)<1.5 or not loss@200 >3) "two words"')).toContain(
    "column best(validation/loss)<",
  );
  expect(kinds("not wide")).toEqual(["word not", "value wide"]);
  expect(kinds('name:"a b"')).toEqual(["column name:", 'value "a b"']);
});

test.each(["", "loss<", '"open', "a:b:c ((", "  lr >= 3 ", "π≠\n<>"])("nothing of %j is lost", (text) => {
  expect(
    queryParts(text)
      .map((part) => part.text)
      .join(""),
  ).toBe(text);
});
