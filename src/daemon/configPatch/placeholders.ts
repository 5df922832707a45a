/** Placeholders of `invocation`, `configs` values and `env` (spec 4.6). No I/O. */
import { Data, Result, type Schema } from "effect"
import { namedPorts, portsInOrder } from "../../contract/domain/Allocation.ts"
import { isOfDaemon, upperCased } from "../../contract/domain/environment.ts"
import { memoryLimitMib } from "../../contract/domain/Limits.ts"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import { isJsonList, standIn } from "./find.ts"

export interface PlaceholderContext {
  readonly server_id: string
  readonly version: string
  readonly ip: string
  readonly port: number
  /** All ports of the default address, the default port first; `{{server.build.ports.N}}` counts from 0. */
  readonly ports: ReadonlyArray<number>
  /** The named ports, by name. */
  readonly named: Readonly<Record<string, number>>
  /** Memory limit in whole MiB; 0 is no limit. */
  readonly memoryMib: number
  readonly env: Readonly<Record<string, string>>
}

/** A placeholder without a value: mistyped, a port that the server does not have, an unset variable. */
export class UnknownPlaceholder extends Data.TaggedError("UnknownPlaceholder")<{
  /** As written between the braces, without the white space around it. */
  readonly placeholder: string
}> {
  override get message() {
    return `unknown placeholder: {{${this.placeholder}}}`
  }
}

/** The values of placeholders exceed the bound: a repeated variable would fill the memory of the daemon. */
class ExpansionTooLong extends Data.TaggedError("ExpansionTooLong")<{ readonly characters: number }> {
  override get message() {
    return `its placeholders stand for more than ${this.characters} characters`
  }
}

export type PlaceholderProblem = UnknownPlaceholder | ExpansionTooLong

/** The bounds of expanded characters: in one text, in one environment, in one file. */
const MOST_EXPANDED = { text: 131_072, environment: 131_072, file: 1_048_576 } as const

interface Budget {
  readonly most: number
  left: number
}

const budgetOf = (most: number): Budget => ({ most, left: most })

const pattern = /\{\{([^{}]*)\}\}/g
const whole = /^\{\{([^{}]*)\}\}$/
const portIndex = /^server\.build\.ports\.(0|[1-9]\d{0,4})$/
const portName = /^server\.build\.ports\.([a-z]\w*)$/

/** A variable by its name alone, as in files for SLS and Pterodactyl. */
const upperCase = /^[A-Z_][A-Z0-9_]*$/

const lookUp = (name: string, context: PlaceholderContext): string | number | undefined => {
  switch (name) {
    case "server.id":
      return context.server_id
    case "server.version":
      return context.version
    case "server.build.default.ip":
      return context.ip
    case "server.build.default.port":
      return context.port
    case "server.build.memory":
      return context.memoryMib
  }
  const index = portIndex.exec(name)?.[1]
  if (index !== undefined) return context.ports[Number(index)]
  const port = portName.exec(name)?.[1]
  if (port !== undefined) return Object.hasOwn(context.named, port) ? context.named[port] : undefined
  const variable = name.startsWith("env.") ? name.slice("env.".length) : upperCase.exec(name)?.[0]
  if (variable === undefined) return undefined
  return Object.hasOwn(context.env, variable) ? context.env[variable] : undefined
}

/** Replaces every placeholder in one pass: the value of a placeholder is never expanded again. */
export const expand = (
  text: string,
  context: PlaceholderContext,
  budget = budgetOf(MOST_EXPANDED.text)
): Result.Result<string, PlaceholderProblem> => {
  let unknown: string | undefined
  const expanded = text.replace(pattern, (written: string, inner: string) => {
    const name = inner.trim()
    const value = lookUp(name, context)
    if (value === undefined) {
      unknown ??= name
      return written
    }
    const stands = String(value)
    budget.left -= stands.length
    return budget.left < 0 ? "" : stands
  })
  if (unknown !== undefined) return Result.fail(new UnknownPlaceholder({ placeholder: unknown }))
  return budget.left < 0
    ? Result.fail(new ExpansionTooLong({ characters: budget.most }))
    : Result.succeed(expanded)
}

/** Expands strings, but no keys. With `typed`, a string that is only one placeholder becomes a {@link standIn}. */
export const expandJson = (
  value: Schema.Json,
  context: PlaceholderContext,
  typed: boolean
): Result.Result<Schema.Json, PlaceholderProblem> => {
  const budget = budgetOf(MOST_EXPANDED.file)
  let problem: PlaceholderProblem | undefined
  const text = (written: string): Schema.Json => {
    const only = typed ? whole.exec(written)?.[1] : undefined
    const number = only === undefined ? undefined : lookUp(only.trim(), context)
    if (typeof number === "number") return standIn(number)
    const expanded = expand(written, context, budget)
    if (Result.isSuccess(expanded)) return only === undefined ? expanded.success : standIn(expanded.success)
    problem ??= expanded.failure
    return written
  }
  const walk = (node: Schema.Json): Schema.Json => {
    if (typeof node === "string") return text(node)
    if (node === null || typeof node !== "object") return node
    if (isJsonList(node)) return node.map(walk)
    // fromEntries defines own properties, so that a key `__proto__` is a key like any other
    return Object.fromEntries(Object.entries(node).map(([key, child]) => [key, walk(child)]))
  }
  const expanded = walk(value)
  return problem === undefined ? Result.succeed(expanded) : Result.fail(problem)
}

/**
 * Returns the context of a server, with the environment of its process: `state.env` expanded, then `SERVER_ID`,
 * `SERVER_IP`, `SERVER_PORT`, `SERVER_PORT_<NAME>`, `SERVER_MEMORY` (MiB, 0 = no limit) and `VERSION`, which win.
 * Lower-case names also exist in upper case ({@link upperCased}). `{{env.X}}` in a variable is X as written, so no loop
 * occurs. Fails if `env` has an unknown placeholder or expands beyond the bound.
 */
export const contextOf = (spec: ServerSpec): Result.Result<PlaceholderContext, PlaceholderProblem> => {
  const { definition, allocations } = spec
  const { ip, port } = allocations.default
  const named = Object.fromEntries(
    Object.entries(namedPorts(allocations, definition.port_names ?? [])).map(([name, at]) => [name, at.port])
  )
  const memory = memoryLimitMib(definition.limits)
  const own = {
    SERVER_ID: spec.id,
    SERVER_IP: ip,
    SERVER_PORT: String(port),
    ...Object.fromEntries(
      Object.entries(named).map(([name, number]) => [`SERVER_PORT_${name.toUpperCase()}`, String(number)])
    ),
    SERVER_MEMORY: String(memory),
    VERSION: definition.version
  }
  const written: PlaceholderContext = {
    server_id: spec.id,
    version: definition.version,
    ip,
    port,
    ports: portsInOrder(allocations),
    named,
    memoryMib: memory,
    env: { ...upperCased(definition.env), ...own }
  }
  const env: Array<readonly [string, string]> = []
  const budget = budgetOf(MOST_EXPANDED.environment)
  for (const [name, value] of Object.entries(definition.env)) {
    // The runtime sets its own.
    if (isOfDaemon(name)) continue
    const expanded = expand(value, written, budget)
    if (Result.isFailure(expanded)) return Result.fail(expanded.failure)
    env.push([name, expanded.success])
  }
  return Result.succeed({ ...written, env: { ...upperCased(Object.fromEntries(env)), ...own } })
}
