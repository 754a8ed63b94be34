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
