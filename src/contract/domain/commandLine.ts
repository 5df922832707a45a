/** Splits a command line into words like a POSIX shell, but without any expansion. Pure. */

export type Words = { readonly words: ReadonlyArray<string> } | { readonly invalid: string }

const blank = /\s/

/**
 * Returns the words of an invocation. `{{...}}` stays whole: placeholders are filled in after the split, so a value
 * never becomes more than one word.
 */
export const splitWords = (text: string): Words => {
  const words: Array<string> = []
  let word: string | undefined
  let quote: string | undefined
  let at = 0
  while (at < text.length) {
    const char = text.charAt(at)
    if (text.startsWith("{{", at)) {
      const end = text.indexOf("}}", at)
      if (end < 0) return { invalid: "{{ has no }}" }
      word = (word ?? "") + text.slice(at, end + 2)
      at = end + 2
    } else if (quote === undefined && blank.test(char)) {
      if (word !== undefined) words.push(word)
      word = undefined
      at++
    } else if (quote === undefined && (char === '"' || char === "'")) {
      quote = char
      word ??= ""
      at++
    } else if (char === quote) {
      quote = undefined
      at++
    } else if (char === "\\" && quote !== "'") {
      const following = text.charAt(at + 1)
      if (following === "") return { invalid: "a backslash ends it" }
      const kept = quote === '"' && following !== '"' && following !== "\\" ? char + following : following
      word = (word ?? "") + kept
      at += 2
    } else {
      word = (word ?? "") + char
      at++
    }
  }
  if (quote !== undefined) return { invalid: `a ${quote} is not closed` }
  if (word !== undefined) words.push(word)
  return words.length === 0 ? { invalid: "it is empty" } : { words }
}
