// @vitest-environment happy-dom
import { beforeAll, expect, test, vi } from "vitest";
import { FakePages } from "../pages/fake-pages";
import type { TableQuery } from "./source";
import { applyRows, known, nameOf, shown, start, table } from "./state";
import type { RunRow, RunTable } from "./types";

/** A source whose filter leaves out the run `other` from the second question on, and `absent` always. */
class Filtered extends FakePages {
  tables = 0;

  override async table(query?: TableQuery): Promise<RunTable> {
    const whole = await super.table();
    if (query?.hidden) return whole;
    this.tables++;
    const left = ["absent", ...(this.tables > 1 ? ["other"] : [])];
    return { ...whole, rows: whole.rows.filter(({ id }) => !left.includes(id)) };
  }
}

const fake = new Filtered([
  { id: "shown", row: { status: "live" }, series: {} },
  { id: "other", row: { status: "live", values: [3] }, series: {} },
  { id: "absent", row: { name: "hidden by the filter" }, series: {} },
]);
const row = (id: string, changes: Partial<RunRow>): RunRow => ({ ...(known.peek().get(id) as RunRow), ...changes });
const statuses = () => table.value?.rows.map(({ id, status }) => `${id} ${status}`);

beforeAll(async () => {
  start(fake.source);
  await vi.waitFor(() => expect(table.value?.rows).toHaveLength(2));
});

test("a run that is shown is known by name though the filter leaves it out", async () => {
  expect(shown.value).toContain("absent");
  await vi.waitFor(() => expect(nameOf("absent")).toBe("hidden by the filter"));
  expect(statuses()).toEqual(["shown live", "other live"]);
});

test("a row that changes is in the table at once, with the columns that it had", () => {
  applyRows([row("other", { step: 7, values: [] })], []);
  expect(table.value?.rows[1]).toMatchObject({ id: "other", step: 7, values: [3] });
});

test("the status of a run that the filter leaves out is known too, and asks for no table each time", async () => {
  vi.useFakeTimers();
  applyRows([row("shown", { name: "renamed" })], []); // soon the table is asked for anew
  await vi.advanceTimersByTimeAsync(1000);
  expect(statuses()).toEqual(["shown live"]);
  const asked = fake.tables;
  for (let step = 8; step < 12; step++) {
    applyRows([row("other", { step })], []);
    await vi.advanceTimersByTimeAsync(500);
  }
  expect(fake.tables).toBe(asked);
  expect(known.value.get("other")?.step).toBe(11);
  applyRows([row("other", { status: "completed" })], []);
  expect(known.value.get("other")?.status).toBe("completed");
  await vi.advanceTimersByTimeAsync(1000);
  expect(fake.tables).toBe(asked + 1); // what it was left out for may have changed
  applyRows([], ["shown"]);
  expect(statuses()).toEqual(["shown gone"]);
  vi.useRealTimers();
});
