import { expect, test } from "vitest";
import { tipLeft } from "./overlay";

const ROOM = { from: -20, to: 600 };

test("a tip stands right of the cursor where it is whole there, else left", () => {
  expect(tipLeft(100, 200, ROOM)).toBe(114);
  expect(tipLeft(386, 200, ROOM)).toBe(400);
  expect(tipLeft(387, 200, ROOM)).toBe(173);
});

test("a wide one is never cut off", () => {
  expect(tipLeft(380, 420, ROOM)).toBe(-20);
  for (let x = 0; x <= 600; x += 10) {
    const left = tipLeft(x, 420, ROOM);
    expect(left).toBeGreaterThanOrEqual(ROOM.from);
    expect(left + 420).toBeLessThanOrEqual(ROOM.to);
  }
});
