/** The content of definition files before composition. No I/O. */

import type { Schema } from "effect"
import type {
  BlueprintState,
  Copy,
  Mount,
  PlacementRule,
  RestartRule,
  Volume
} from "../../../contract/domain/Blueprint.ts"
import type { ConfigPatch, ConfigPatches } from "../../../contract/domain/ConfigPatch.ts"
import type { Limits } from "../../../contract/domain/Limits.ts"
import type { RunRule } from "../../../contract/domain/Run.ts"
import type { Software } from "../../../contract/domain/Software.ts"
import type { Origin, Position } from "./problem.ts"

/** A value and its position: two files may be valid and exclude each other. */
export interface Written<A> {
  readonly value: A
  readonly at: Origin
}

export interface ServerPart {
  readonly software?: string
  readonly version?: string
  readonly image?: string
  readonly limits?: Limits
  /** Their number, or their names. */
  readonly ports?: number | ReadonlyArray<string>
  readonly stop_timeout?: number
  readonly configs?: Readonly<Record<string, Written<ConfigPatch>>>
  readonly placement?: Partial<PlacementRule>
  readonly restart?: Partial<RestartRule>
  readonly run?: RunRule
  readonly priority?: number
}

/** `state:` of a blueprint or mixin, shorthands expanded. */
export interface StatePart {
  readonly volumes: ReadonlyArray<Written<Volume>>
  readonly mounts: ReadonlyArray<Written<Mount>>
  readonly copy: ReadonlyArray<Written<Copy>>
  /** null removes a variable of a mixin. */
  readonly env: Readonly<Record<string, string | null>>
  readonly env_allow: ReadonlyArray<string>
}

export interface Composable {
  readonly server: ServerPart
  /** Null if the file has no `state`. */
  readonly state: StatePart | null
  readonly annotations: Readonly<Record<string, Schema.Json>>
}

/** An id that a file refers to, and its position. */
export interface Reference extends Position {
  readonly id: string
}

interface DefinitionFile {
  readonly file: string
  readonly at: Position
}

export interface BlueprintFile extends DefinitionFile, Composable {
  readonly kind: "blueprint"
  readonly id: string
  readonly name: string
  readonly type: string
  readonly includes: ReadonlyArray<Reference>
  readonly save: boolean
  readonly start?: boolean
}

export interface MixinFile extends DefinitionFile, Composable {
  readonly kind: "mixin"
  readonly id: string
  readonly description: string
  readonly extends: ReadonlyArray<Reference>
}

export interface SoftwareFile extends DefinitionFile {
  readonly kind: "software"
  readonly id: string
  readonly software: Software
}

export type AnyFile = BlueprintFile | MixinFile | SoftwareFile

const values = <A>(written: ReadonlyArray<Written<A>>): ReadonlyArray<A> => written.map(({ value }) => value)

export const variablesOf = (env: StatePart["env"]): BlueprintState["env"] =>
  Object.fromEntries(
    Object.entries(env).flatMap(([name, value]) => (value === null ? [] : [[name, value] as const]))
  )

/** Returns a state without positions. */
export const stateOf = ({ copy, env, mounts, volumes }: StatePart): BlueprintState => ({
  volumes: values(volumes),
  mounts: values(mounts),
  copy: values(copy),
  env: variablesOf(env)
})

/** Returns the patches of a server without positions. */
export const configsOf = (server: ServerPart): ConfigPatches =>
  Object.fromEntries(Object.entries(server.configs ?? {}).map(([file, { value }]) => [file, value]))
