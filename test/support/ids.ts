/** Plain text in place of ids, for the inputs of tests. */
import type { Brand } from "effect"

/** `T` with plain text in place of ids. */
export type Plain<T> =
  T extends Brand.Brand<string>
    ? string
    : T extends (...args: never) => unknown
      ? T
      : T extends object
        ? { readonly [K in keyof T]: Plain<T[K]> }
        : T

/** A service whose methods take plain text for ids. Generic methods lose their type parameters. */
export type PlainService<S> = {
  readonly [K in keyof S]: S[K] extends (...args: infer A) => infer B
    ? (...args: { [I in keyof A]: Plain<A[I]> }) => B
    : S[K]
}

// A brand exists only in the types: both casts change nothing else.
export const plain = <S>(service: S): PlainService<S> => service as unknown as PlainService<S>

/** Takes the plain text of ids for ids. */
export const branded = <T>(value: Plain<NoInfer<T>>): T => value as T
