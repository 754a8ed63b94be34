// Which words of a text are not in another one: samples of two steps, or of two runs.

export interface TextPart {
  text: string;
  changed: boolean;
}

const MOST_CELLS = 1_000_000; // of the table; of longer texts only the beginnings and ends are compared

/** `text` in parts, those that `before` does not have at that place marked. Whitespace belongs to the word before it. */
export function changedParts(before: string, text: string): TextPart[] {
  const old = words(before);
  const now = words(text);
  let first = 0;
  while (first < old.length && first < now.length && same(old[first]!, now[first]!)) first++;
  let last = 0;
  while (last < old.length - first && last < now.length - first && same(old.at(-1 - last)!, now.at(-1 - last)!)) last++;
  const kept = commonWords(old.slice(first, old.length - last), now.slice(first, now.length - last));
  const parts: TextPart[] = [];
  now.forEach((word, index) => {
    const inMiddle = index >= first && index < now.length - last;
    const changed = inMiddle && !kept.has(index - first);
    const part = parts.at(-1);
    if (part && part.changed === changed) part.text += word;
    else parts.push({ text: word, changed });
  });
  return parts;
}

function words(text: string): string[] {
  return text.match(/\s*\S+\s*|\s+/g) ?? [];
}

function same(a: string, b: string): boolean {
  return a === b || a.trim() === b.trim();
}

/** The places in `now` of a longest common subsequence. */
function commonWords(old: string[], now: string[]): Set<number> {
  const kept = new Set<number>();
  if (old.length === 0 || now.length === 0 || old.length * now.length > MOST_CELLS) return kept;
  const width = now.length + 1;
  const lengths = new Uint32Array((old.length + 1) * width);
  for (let i = old.length - 1; i >= 0; i--)
    for (let j = now.length - 1; j >= 0; j--)
      lengths[i * width + j] = same(old[i]!, now[j]!)
        ? lengths[(i + 1) * width + j + 1]! + 1
        : Math.max(lengths[(i + 1) * width + j]!, lengths[i * width + j + 1]!);
  for (let i = 0, j = 0; i < old.length && j < now.length; ) {
    if (same(old[i]!, now[j]!)) {
      kept.add(j++);
      i++;
    } else if (lengths[(i + 1) * width + j]! >= lengths[i * width + j + 1]!) i++;
    else j++;
  }
  return kept;
}
