/** The definitions of a run, and their properties in the model. */
import { committedMemoryBytes } from "../../src/contract/domain/Limits.ts"
import { blueprintFile, softwareFile } from "../support/definitions.ts"
import type { CreateBody } from "./History.ts"

interface Kind {
  readonly save: boolean
  readonly ports: number
  /** MiB; undefined: no limit. */
  readonly memory: number | undefined
}

export const kinds: Readonly<Record<string, Kind>> = {
  kept: { save: true, ports: 1, memory: 64 },
  passing: { save: false, ports: 1, memory: 64 },
  wide: { save: true, ports: 2, memory: 128 },
  boundless: { save: false, ports: 1, memory: undefined }
}

/** The files of all blueprints; each generation is another definition. */
export const blueprintFiles = (generation: number) =>
  Object.fromEntries(
    Object.entries(kinds).map(([id, { memory, ports, save }]) => [
      `${id}.yml`,
      blueprintFile(id, "game", {
        save,
        server: { ports, limits: memory === undefined ? {} : { memory_limit: memory } },
        rest: { state: { env: { GENERATION: String(generation) } } }
      })
    ])
  )

export const files = { software: { "game.yml": softwareFile("game") }, blueprints: blueprintFiles(0) }

/** The blueprints of new servers, repeated by weight. */
export const blueprints = ["kept", "kept", "kept", "passing", "passing", "wide", "wide", "boundless"] as const

/** Whether servers of a blueprint are deleted after their run. */
export const isEphemeral = ({ blueprint_id }: Pick<CreateBody, "blueprint_id">): boolean =>
  kinds[blueprint_id]?.save === false

/** The limits of a server without overrides. */
export const limitsOf = (blueprint_id: string) => {
  const memory = kinds[blueprint_id]?.memory
  return memory === undefined ? {} : { memory_limit: memory }
}

/** The memory that a server without overrides commits, in bytes. */
export const memoryOf = (blueprint_id: string): number => committedMemoryBytes(limitsOf(blueprint_id))

/** The memory limits that clients set, in MiB. */
export const memoryLimits = [64, 96, 128] as const
