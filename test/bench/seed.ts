/** Servers that exist in the database before the service starts. */

import { randomBytes } from "node:crypto"
import { mkdirSync } from "node:fs"
import { join } from "node:path"
import { Array as Arr, Effect } from "effect"
import { serverId } from "../../src/contract/domain/Id.ts"
import type { ServerRecord } from "../../src/contract/domain/Server.ts"
import { layerSqlite } from "../../src/controlPlane/store/layers/layerDatabase.ts"
import { NodeRepo } from "../../src/controlPlane/store/repos/NodeRepo.ts"
import { ServerRepo } from "../../src/controlPlane/store/repos/ServerRepo.ts"
import { Store } from "../../src/controlPlane/store/Store.ts"
import { serverRecord } from "../controlPlane/nodes/support/fleet.ts"
import { node } from "../support/samples.ts"

const FIRST_PORT = 10_000
/** The most servers of one node, each with a port. */
const PER_NODE = 50_000
const PER_WRITE = 500

interface SeedOptions {
  readonly known: boolean
  /** Servers of each node. Default: as many as it has ports for. */
  readonly perNode?: number
  readonly own?: (n: number) => Partial<ServerRecord>
}

/**
 * Seeds `count` servers on nodes without a daemon; returns their ids. Their status is `unknown` and they are saved, so
 * the service has no work for them.
 * @param options.known whether the nodes have records; without them a forced deletion is not retried
 * @param options.own   fields of server number n
 */
export const seedServers = (dataDir: string, count: number, options: SeedOptions) =>
  Effect.gen(function* () {
    yield* Effect.sync(() => mkdirSync(dataDir, { recursive: true, mode: 0o700 }))
    return yield* seed(count, options).pipe(
      Effect.provide(layerSqlite({ filename: join(dataDir, "muster.db") }))
    )
  })

const seed = (count: number, { known, own = () => ({}), perNode = PER_NODE }: SeedOptions) =>
  Effect.gen(function* () {
    const store = yield* Store
    const servers = yield* ServerRepo
    const nodes = yield* NodeRepo
    const now = Date.now()
    const records = Arr.makeBy(count, (n): ServerRecord => {
      const record = serverRecord(serverId(randomBytes(16)), `node-${1 + Math.floor(n / perNode)}`, [
        FIRST_PORT + (n % perNode)
      ])
      return {
        ...record,
        created_at: new Date(now + n).toISOString(),
        status: "unknown",
        definition: { ...record.definition, save: true },
        ...own(n)
      }
    })
    const names = new Set(records.map(({ node_id }) => node_id))
    if (known) yield* Effect.forEach(names, (name) => store.write(nodes.save(node(name))), { discard: true })
    for (const some of Arr.chunksOf(records, PER_WRITE)) {
      yield* store.write(servers.insertAll(some))
    }
    return records.map((record) => record.id)
  })
