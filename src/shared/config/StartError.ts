import { Data } from "effect"

/** The service cannot start; the message has the reason and the next step. */
export class StartError extends Data.TaggedError("StartError")<{ readonly message: string }> {}
