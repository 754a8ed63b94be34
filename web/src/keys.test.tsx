import { render } from "preact";
import { act } from "preact/test-utils";
import { expect, it } from "vitest";
import { type Command, commands, handleKey, register, useCommands } from "./keys";

const command = (text: string, said: string[]): Command => ({
  keys: ["n"],
  section: "test",
  text,
  run: () => said.push(text),
});

it("a key belongs to what stands inside, though effects of what stands inside run first", async () => {
  const said: string[] = [];
  function Inside() {
    useCommands([command("tab", said)]);
    return null;
  }
  function Page() {
    useCommands([command("page", said)]);
    return <Inside />;
  }
  const root = document.createElement("div");
  await act(() => render(<Page />, root));
  expect(commands.value.map(({ text }) => text)).toEqual(["tab", "page"]);
  handleKey(new KeyboardEvent("keydown", { key: "n" }));
  expect(said).toEqual(["tab"]);
  await act(() => render(null, root));
  expect(commands.value).toEqual([]);
});

it("a key goes to what is drawn, also before the browser has painted it", () => {
  const said: string[] = [];
  function Page({ name }: { name: string }) {
    useCommands([command(name, said)]);
    return null;
  }
  const root = document.createElement("div");
  for (const name of ["first", "second"]) {
    render(<Page key={name} name={name} />, root);
    handleKey(new KeyboardEvent("keydown", { key: "n" }));
  }
  render(null, root);
  handleKey(new KeyboardEvent("keydown", { key: "n" }));
  expect(said).toEqual(["first", "second"]);
});

it("what is registered later goes before, until it ends", () => {
  const end = register([command("first", [])]);
  const endSecond = register([command("second", [])]);
  expect(commands.value[0]?.text).toBe("second");
  endSecond();
  expect(commands.value[0]?.text).toBe("first");
  end();
});
