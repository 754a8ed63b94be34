// @vitest-environment happy-dom
import { beforeEach, describe, expect, test, vi } from "vitest";
import {
  choice,
  flag,
  formatAddress,
  link,
  list,
  navigate,
  number,
  page,
  pageParam,
  parseAddress,
  sharedParam,
} from "./address";

const smooth = sharedParam("smooth", number, 0);
const runs = sharedParam("runs", list, []);
const tab = pageParam("tab", choice("config", "log"), "config");
const log = pageParam("log", flag, false);

beforeEach(() => navigate("/runs", { smooth: "", runs: "", tab: "", log: "" }));

describe("address", () => {
  test.each([
    ["#/charts?runs=a,b&smooth=0.3", ["charts"], { runs: "a,b", smooth: "0.3" }],
    ["#/run/xor%2Fone/config", ["run", "xor/one", "config"], {}],
    ["", [], {}],
    ["#/runs?q=loss%3C2%20tag%3Abase&flag", ["runs"], { q: "loss<2 tag:base", flag: "" }],
    ["#/runs?q=100%", ["runs"], { q: "100%" }],
  ])("%s is read", (hash, path, params) => {
    const parsed = parseAddress(hash);
    expect(parsed.path).toEqual(path);
    expect(Object.fromEntries(parsed.params)).toEqual(params);
  });

  test("whatever is written is read back", () => {
    const params = new Map([
      ["q", 'loss<2 and name:"a&b=c#%?" π'],
      ["runs", list.format(["a,b", "100%", "plain"])],
    ]);
    const parsed = parseAddress(formatAddress(["run", "a?b/c"], params));
    expect(parsed.path).toEqual(["run", "a?b/c"]);
    expect([...parsed.params]).toEqual([...params]);
    expect(list.parse(parsed.params.get("runs") ?? "")).toEqual(["a,b", "100%", "plain"]);
  });

  test("a default is left out, a value that cannot be read is the default", () => {
    smooth.value = 0.3;
    expect(location.hash).toBe("#/runs?smooth=0.3");
    smooth.value = 0;
    expect(location.hash).toBe("#/runs");
    navigate("/runs?smooth=much&tab=nothing");
    expect(smooth.value).toBe(0);
    expect(tab.value).toBe("config");
  });

  test("links to other pages keep what pages share, and nothing else", () => {
    runs.value = ["a", "b"];
    log.value = true;
    expect(location.hash).toBe("#/runs?runs=a,b&log=1");
    expect(link("/charts", { smooth: "0.5" })).toBe("#/charts?runs=a,b&smooth=0.5");
  });

  test("Back goes to the view before; what was replaced leaves no entry", () => {
    const push = vi.spyOn(history, "pushState");
    const replace = vi.spyOn(history, "replaceState");
    smooth.value = 0.1;
    smooth.replace(0.2);
    smooth.replace(0.2);
    expect(push).toHaveBeenCalledTimes(1);
    expect(replace).toHaveBeenCalledTimes(1);
    history.replaceState(null, "", "#/charts?smooth=0.9"); // as the browser does before it tells
    dispatchEvent(new PopStateEvent("popstate"));
    expect(smooth.value).toBe(0.9);
    expect(page.value).toBe("charts");
  });
});
