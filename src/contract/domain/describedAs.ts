/** The key of the annotation of {@link describedAs}. */
export const DESCRIBED_AS = "x-described-as"

/**
 * Annotates a schema with the one that the OpenAPI document shows in its place: a query parameter is text to the service,
 * and an integer, a boolean or a list to its caller.
 */
export const describedAs = (schema: Readonly<Record<string, unknown>>) => ({ [DESCRIBED_AS]: schema })
