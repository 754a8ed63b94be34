// @vitest-environment happy-dom
import { afterEach, expect, test, vi } from "vitest";
import { HttpSource } from "./http";

const metrics = (text: string) => new Response(JSON.stringify([{ id: text }]));

afterEach(() => {
  vi.unstubAllGlobals();
  delete window.linnetAsked;
  delete window.linnetFirst;
  localStorage.clear();
});

test("what was asked for early is taken once, and asked for again where it failed", async () => {
  const asked: string[] = [];
  vi.stubGlobal("fetch", async (address: string) => {
    asked.push(address);
    return metrics("later");
  });
  const lost = Promise.reject(new Error("no answer"));
  lost.catch(() => {});
  window.linnetAsked = new Map<string, Promise<unknown>>([
    ["metrics?runs=a", Promise.resolve([{ id: "early" }])],
    ["metrics?runs=b", lost],
  ]);
  const source = new HttpSource();
  expect(await source.metrics(["a"])).toEqual([{ id: "early" }]);
  expect(asked).toEqual([]);
  expect(await source.metrics(["a"])).toEqual([{ id: "later" }]);
  expect(await source.metrics(["b"])).toEqual([{ id: "later" }]);
  expect(asked).toEqual(["api/metrics?runs=a", "api/metrics?runs=b"]);
});

const ALL_RUNS = { where: "", columns: [], sort: "", reverse: false, group: "", hidden: false };

test.each([
  ["", ["api/board", "api/runs?seconds=1.5"]],
  ["#/charts?runs=a,b%20c&x=tokens", ["api/board", "api/metrics?runs=a&runs=b+c", "api/runs?seconds=1.5"]],
  ["#/runs?q=loss<2", ["api/board"]],
])("at %s the early script asks for what the first view needs", async (hash, addresses) => {
  const asked: string[] = [];
  vi.stubGlobal("fetch", async (address: string) => {
    asked.push(address);
    return metrics("early");
  });
  location.hash = hash;
  vi.resetModules();
  await import("../early");
  expect(asked).toEqual(addresses);
  if (hash.includes("charts")) expect(await new HttpSource().metrics(["a", "b c"])).toEqual([{ id: "early" }]);
  if (!hash.includes("q=")) expect(await new HttpSource().table(ALL_RUNS)).toEqual(await window.linnetFirst);
  expect(asked).toEqual(addresses);
});

test("a table that somebody chose otherwise is not asked for early", async () => {
  const asked: string[] = [];
  vi.stubGlobal("fetch", async (address: string) => {
    asked.push(address);
    return metrics("early");
  });
  localStorage.setItem("linnet.sort ~/runs", "best");
  location.hash = "#/runs";
  vi.resetModules();
  await import("../early");
  expect(asked).toEqual(["api/board"]);
  expect(window.linnetFirst).toBeUndefined();
});
