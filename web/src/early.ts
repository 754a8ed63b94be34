/**
 * Asks for what the first view needs while the page itself is still on its way: `HttpSource` takes the answers.
 *
 * A script of its own and no module: it imports nothing, and runs as soon as it is there, long before the page does.
 */
declare global {
  interface Window {
    /** Answers by what was asked for, each for one who asks the same. */
    linnetAsked?: Map<string, Promise<unknown>>;
  }
}

(() => {
  const asked = new Map<string, Promise<unknown>>();
  window.linnetAsked = asked;

  function ask(path: string): void {
    const answer = fetch(`api/${path}`).then((response) => (response.ok ? response.json() : Promise.reject(response)));
    answer.catch(() => {}); // who wants it asks again, and says what is wrong
    asked.set(path, answer);
  }

  const [path = "", query = ""] = location.hash.replace(/^#?\/?/, "").split("?");
  const runs = new URLSearchParams(query).get("runs");
  ask("board");
  if (path === "charts" && runs) ask(`metrics?${new URLSearchParams(runs.split(",").map((run) => ["runs", run]))}`);
})();

export {};
