/** The definitions of a run, and their properties in the model. */
import { committedMemoryBytes } from "../../src/domain/Limits.ts"
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

export const files = {
  software: { "game.yml": softwareFile("game") },
  blueprints: Object.fromEntries(
    Object.entries(kinds).map(([id, { memory, ports, save }]) => [
      `${id}.yml`,
      blueprintFile(id, "game", {
        save,
        server: { ports, limits: memory === undefined ? {} : { memory_limit: memory } }
      })
    ])
  )
}

/** The blueprints of new servers, repeated by weight. */
export const blueprints = ["kept", "kept", "kept", "passing", "passing", "wide", "wide", "boundless"] as const

/** Whether servers of a blueprint are deleted after their run. */
export const isEphemeral = ({ blueprint_id }: Pick<CreateBody, "blueprint_id">): boolean =>
  kinds[blueprint_id]?.save === false

/** The memory that a server of a blueprint commits, in bytes. */
export const memoryOf = (blueprint_id: string): number => {
  const memory = kinds[blueprint_id]?.memory
  return committedMemoryBytes(memory === undefined ? {} : { memory_limit: memory })
}
