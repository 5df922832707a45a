/** Returns the fields that have a value: exact types know absent fields, not undefined ones. */
export const defined = <A extends object>(fields: A) =>
  // Object.fromEntries cannot express in its type which fields are there.
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as {
    readonly [K in keyof A]?: Exclude<A[K], undefined>
  }
