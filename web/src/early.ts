/**
 * Asks for what the first view needs while the page itself is still on its way: `HttpSource` takes the answers.
 *
 * A script of its own and no module: it imports nothing, and runs as soon as it is there, long before the page does.
 */
declare global {
  interface Window {
    /** Answers by what was asked for, each for one who asks the same. */
    linnetAsked?: Map<string, Promise<unknown>>;
    /** The answer without which the first view shows nothing. */
    linnetFirst?: Promise<unknown>;
  }
}

(() => {
  const asked = new Map<string, Promise<unknown>>();
  window.linnetAsked = asked;

  function ask(path: string): Promise<unknown> {
    const answer = fetch(`api/${path}`).then((response) => (response.ok ? response.json() : Promise.reject(response)));
    answer.catch(() => {}); // who wants it asks again, and says what is wrong
    asked.set(path, answer);
    return answer;
  }

  /** Whether this browser keeps choices of what the table shows. */
  function hasChoices(): boolean {
    try {
      return Object.keys(localStorage).some((name) => /^linnet\.(columns|group|sort|reverse) /.test(name));
    } catch {
      return false; // it keeps nothing
    }
  }

  const [path = "", query = ""] = location.hash.replace(/^#?\/?/, "").split("?");
  const params = new URLSearchParams(query);
  const runs = params.get("runs");
  ask("board");
  if (path === "charts" && runs) {
    window.linnetFirst = ask(`metrics?${new URLSearchParams(runs.split(",").map((run) => ["runs", run]))}`);
  }
  const isPlain = !["q", "columns", "sort", "reverse", "group", "hidden"].some((name) => params.has(name));
  if (isPlain && !hasChoices()) {
    const table = ask("runs?seconds=1.5");
    window.linnetFirst ??= table;
  }
})();

export {};
