// @vitest-environment happy-dom
import { afterEach, expect, test, vi } from "vitest";
import { HttpSource } from "./http";

const metrics = (text: string) => new Response(JSON.stringify([{ id: text }]));

afterEach(() => {
  vi.unstubAllGlobals();
  delete window.linnetAsked;
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

test("the early script asks for what the charts of the address need", async () => {
  const asked: string[] = [];
  vi.stubGlobal("fetch", async (address: string) => {
    asked.push(address);
    return metrics("early");
  });
  location.hash = "#/charts?runs=a,b%20c&x=tokens";
  await import("../early");
  expect(asked).toEqual(["api/board", "api/metrics?runs=a&runs=b+c"]);
  expect(await new HttpSource().metrics(["a", "b c"])).toEqual([{ id: "early" }]);
  expect(asked).toHaveLength(2);
});
