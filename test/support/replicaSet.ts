/** Several services on one PostgreSQL, each with its own node. */

import { randomBytes } from "node:crypto"
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import type { KeyScope } from "../../src/contract/domain/Key.ts"
import { muster } from "./command.ts"
import { makeKeyAt } from "./keys.ts"
import { alone, nodeIs } from "./nodes.ts"
import { newPostgresDatabase } from "./postgresDatabase.ts"
import { type Service, ServiceFailed, startService } from "./Service.ts"
import { makeSimulatedNode } from "./SimulatedNode.ts"
import { temporaryFolder } from "./temporaryFolder.ts"

/** These tests do not cover slow databases, but the machine may be slow. */
const longTimeouts = { MUSTER_DATABASE_TIMEOUT: "5000" }

/** A database, and functions that run services and commands on it. */
export const replicaSet = Effect.fnUntraced(function* (
  env: Readonly<Record<string, string>> = {},
  server?: Parameters<typeof newPostgresDatabase>[0]
) {
  const url = yield* newPostgresDatabase(server)
  const folder = yield* temporaryFolder
  const secret = join(folder, "secret.key")
  writeFileSync(secret, randomBytes(32).toString("hex"), { mode: 0o600 })
  const shared = { ...alone, ...longTimeouts, MUSTER_SECRET_FILE: secret, ...env, MUSTER_DATABASE_URL: url }
  let count = 0

  const command = (...args: ReadonlyArray<string>) =>
    Effect.flatMap(
      muster(args, { ...shared, MUSTER_DATA_DIR: join(folder, `replica-${count}`) }),
      ({ code, stderr, stdout }) =>
        code === 0
          ? Effect.succeed({ stdout, stderr })
          : Effect.fail(new ServiceFailed({ message: `muster ${args.join(" ")}: ${stderr}` }))
    )

  return {
    url,
    /** Starts another replica. @param main the main module of another version */
    start: (own: Readonly<Record<string, string>> = {}, main?: string) =>
      Effect.suspend(() => {
        count += 1
        return startService({
          dataDir: join(folder, `replica-${count}`),
          env: { ...shared, ...own },
          ...(main === undefined ? {} : { main })
        })
      }),
    /** Runs `muster <args>` on the host of the newest replica; fails if the command does. */
    command,
    /** Creates a key in the database. */
    key: (name: string, scope: KeyScope = "AppAdmin") => makeKeyAt(url, name, scope)
  }
})

export type ReplicaSet = Effect.Success<ReturnType<typeof replicaSet>>

/** A node that is connected to one replica. */
export const nodeOf = Effect.fnUntraced(function* (
  set: Pick<ReplicaSet, "key">,
  api: Service,
  id: string,
  ports: string
) {
  const { key } = yield* set.key(id, "Node")
  const node = yield* makeSimulatedNode({ id, key, control: [api.url], ports, heartbeat: "1 second" })
  yield* nodeIs(api, id, true)
  return node
})
