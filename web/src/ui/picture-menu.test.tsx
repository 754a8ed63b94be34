import { render } from "preact";
import { act } from "preact/test-utils";
import { expect, it } from "vitest";
import { csvText, svgText } from "./picture-menu";

it("writes rows as CSV, with no formula among them", () => {
  const rows = [
    ["run", "loss"],
    ["a,b", 1.5],
    ['say "x"', null],
    ["=1+1", true],
  ];
  expect(csvText(rows)).toBe('run,loss\n"a,b",1.5\n"say ""x""",\n\'=1+1,true\n');
});

it("takes the styles of the page along", async () => {
  const root = document.createElement("div");
  document.body.append(root);
  await act(() =>
    render(
      <svg class="x" role="img" aria-label="x">
        <text style={{ fill: "red" }}>{"<b>&"}</text>
      </svg>,
      root,
    ),
  );
  const text = svgText(root.querySelector("svg") as SVGSVGElement);
  expect(text).toContain('xmlns="http://www.w3.org/2000/svg"');
  expect(text).toContain('fill="red"');
  expect(text).toContain("&lt;b&gt;&amp;");
  expect(text).not.toContain("class=");
});
