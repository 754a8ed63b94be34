/** The words of a filter, told apart for colouring. What they mean is decided by the server alone. */

export interface QueryPart {
  kind: "column" | "value" | "word" | "space";
  text: string;
}

const PATTERN =
  /(?<space>\s+)|(?<column>(?:"[^"]*"|[^\s"<>=!:~()]|\([^\s()<>=!:~]*\))+(?:<=|>=|!=|[<>=:~]))(?<value>"[^"]*"?|[^\s()]*)|(?<word>"[^"]*"?|[()]|[^\s()"]+|.)/gsu;
const JOINERS = /^(?:and|or|not|[()])$/i;

/** All of `text`, in parts: joined together they are the text again. */
export function queryParts(text: string): QueryPart[] {
  const parts: QueryPart[] = [];
  for (const match of text.matchAll(PATTERN)) {
    const { space, column, value, word } = match.groups ?? {};
    if (space !== undefined) parts.push({ kind: "space", text: space });
    else if (column !== undefined) {
      parts.push({ kind: "column", text: column });
      if (value) parts.push({ kind: "value", text: value });
    } else if (word !== undefined) parts.push({ kind: JOINERS.test(word) ? "word" : "value", text: word });
  }
  return parts;
}

const FIELDS = "run name status recipe experiment group tag tags parent writer step time seconds age created".split(
  " ",
);

/** Names that are compared and that no run has, as a setting, a metric or what a run is called. */
export function unknownColumns(text: string, settings: readonly string[], metrics: readonly string[]): string[] {
  const known = new Set([
    ...FIELDS,
    ...metrics,
    ...settings,
    ...settings.map((name) => name.split(".").at(-1) ?? name),
  ]);
  return queryParts(text)
    .filter((part) => part.kind === "column")
    .map((part) => columnName(part.text))
    .filter((name) => name !== "" && !known.has(name));
}

/** `best(validation/loss)<` and `loss@200>=` without what is done to the metric. */
function columnName(text: string): string {
  const bare = text.replace(/(?:<=|>=|!=|[<>=:~])$/, "");
  return bare
    .replace(/^\(*(?:first|last|best|min|max)\((.*)\)$/, "$1")
    .replace(/@\d+$/, "")
    .replaceAll('"', "");
}
