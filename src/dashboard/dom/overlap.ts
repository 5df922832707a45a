/** Returns how many lines the beginning of `later` repeats of the end of `earlier`. */
export const overlap = (earlier: ReadonlyArray<string>, later: ReadonlyArray<string>): number => {
  for (let size = Math.min(earlier.length, later.length); size > 0; size--) {
    const from = earlier.length - size
    if (later.slice(0, size).every((line, index) => line === earlier[from + index])) return size
  }
  return 0
}
