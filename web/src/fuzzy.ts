/** How well letters that were typed fit a text: all words must be in it, as they are or with letters left out. */

const WORD_START = 8;
const WHOLE_WORD = 4;
const LETTERS_LEFT_OUT = 1;

/** 0 where they do not fit; higher is better. */
export function matchScore(typed: string, text: string): number {
  const hay = text.toLowerCase();
  let score = 0;
  for (const word of typed.toLowerCase().split(/\s+/).filter(Boolean)) {
    const fit = wordScore(word, hay);
    if (!fit) return 0;
    score += fit;
  }
  return score && score + 1 / (1 + text.length);
}

function wordScore(word: string, hay: string): number {
  const at = hay.indexOf(word);
  if (at >= 0) {
    const begins = at === 0 || /[^\p{L}\p{N}]/u.test(hay[at - 1] ?? "");
    return word.length * (begins ? WORD_START : WHOLE_WORD);
  }
  let position = -1;
  for (const letter of word) {
    position = hay.indexOf(letter, position + 1);
    if (position < 0) return 0;
  }
  return word.length * LETTERS_LEFT_OUT;
}
