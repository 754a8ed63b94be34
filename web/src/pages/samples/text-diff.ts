// Which words of a text are not in another one: samples of two steps, or of two runs.

export interface TextPart {
  text: string;
  changed: boolean;
}

const MOST_CELLS = 1_000_000; // of the table; of longer texts only the beginnings and ends are compared

/** `text` in parts, words that `before` does not have at that place marked. Space between marked words is marked with them. */
export function changedParts(before: string, text: string): TextPart[] {
  const old = before.match(/\S+/g) ?? [];
  const now = text.match(/\S+/g) ?? [];
  let first = 0;
  while (first < old.length && first < now.length && old[first] === now[first]) first++;
  let last = 0;
  while (last < old.length - first && last < now.length - first && old.at(-1 - last) === now.at(-1 - last)) last++;
  const kept = commonWords(old.slice(first, old.length - last), now.slice(first, now.length - last));
  const isChanged = (word: number) => word >= first && word < now.length - last && !kept.has(word - first);
  const parts: TextPart[] = [];
  let word = 0;
  for (const token of text.match(/\s+|\S+/g) ?? []) {
    const isSpace = token.trim() === "";
    const changed = isSpace
      ? word > 0 && word < now.length && isChanged(word - 1) && isChanged(word) && !token.includes("\n")
      : isChanged(word++);
    const part = parts.at(-1);
    if (part && part.changed === changed) part.text += token;
    else parts.push({ text: token, changed });
  }
  return parts;
}

/** The places in `now` of a longest common subsequence. */
function commonWords(old: string[], now: string[]): Set<number> {
  const kept = new Set<number>();
  if (old.length === 0 || now.length === 0 || old.length * now.length > MOST_CELLS) return kept;
  const width = now.length + 1;
  const lengths = new Uint32Array((old.length + 1) * width);
  const lengthAt = (i: number, j: number) => lengths[i * width + j] ?? 0;
  for (let i = old.length - 1; i >= 0; i--)
    for (let j = now.length - 1; j >= 0; j--)
      lengths[i * width + j] =
        old[i] === now[j] ? lengthAt(i + 1, j + 1) + 1 : Math.max(lengthAt(i + 1, j), lengthAt(i, j + 1));
  for (let i = 0, j = 0; i < old.length && j < now.length; ) {
    if (old[i] === now[j]) {
      kept.add(j++);
      i++;
    } else if (lengthAt(i + 1, j) >= lengthAt(i, j + 1)) i++;
    else j++;
  }
  return kept;
}
