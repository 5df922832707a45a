import { Data } from "effect"

/** The service cannot start; its message says why and what to do. */
export class StartError extends Data.TaggedError("StartError")<{ readonly message: string }> {}
