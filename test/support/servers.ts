/** Operations on servers over HTTP. */

import { Effect } from "effect"
import type { ServerId } from "../../src/contract/domain/Id.ts"
import { eventually } from "./eventually.ts"
import { type Answer, type RequestOptions, type Service, ServiceFailed } from "./Service.ts"

type Api = Pick<Service, "request">

/** Sends a request and asserts its status. */
export const expectStatus = Effect.fnUntraced(function* (
  api: Api,
  status: number,
  method: string,
  path: string,
  options: RequestOptions = {}
) {
  const answer = yield* api.request(method, path, options)
  if (answer.status !== status) {
    return yield* new ServiceFailed({
      message: `${method} ${path}: ${answer.status} in place of ${status}: ${answer.text}`
    })
  }
  return answer
})

/** Waits until an operation has ended, and returns it. */
export const operationEnd = (api: Api, id: string, within: `${number} seconds`) =>
  eventually(
    Effect.map(expectStatus(api, 200, "GET", `/api/operations/${id}`), ({ json }) => json),
    ({ state }) => state !== "queued" && state !== "running",
    within
  )

/** Creates a server and returns its id. */
export const create = (
  api: Api,
  blueprint_id: string,
  body: Readonly<Record<string, unknown>> = {}
): Effect.Effect<ServerId, ServiceFailed> =>
  Effect.map(
    expectStatus(api, 202, "POST", "/api/servers", { body: { blueprint_id, ...body } }),
    (answer) => answer.json.id
  )

export const power = (
  api: Api,
  id: string,
  action: string,
  wait_seconds?: number
): Effect.Effect<Answer, ServiceFailed> =>
  api.request("POST", `/api/servers/${id}/power`, {
    body: { action, ...(wait_seconds === undefined ? {} : { wait_seconds }) }
  })

/** Sends a power action and asserts that it is accepted. */
export const powered = (api: Api, id: string, action: string, wait_seconds?: number) =>
  expectStatus(api, 200, "POST", `/api/servers/${id}/power`, {
    body: { action, ...(wait_seconds === undefined ? {} : { wait_seconds }) }
  })

export const commands = (api: Api, id: string, ...lines: ReadonlyArray<string>) =>
  api.request("POST", `/api/servers/${id}/commands`, { body: { commands: lines } })

/** The status; `gone` if the server does not exist. */
export const statusOf = (api: Api, id: string): Effect.Effect<string, ServiceFailed> =>
  Effect.map(api.request("GET", `/api/servers/${id}/status`), (answer) =>
    answer.status === 404 ? "gone" : (answer.json?.status ?? `HTTP ${answer.status}`)
  )

/** Waits until the server has the status. */
export const becomes = (api: Api, id: string, status: string, within?: `${number} seconds`) =>
  eventually(statusOf(api, id), (now) => now === status, within)

/** Creates a server and waits for its installation. */
export const installed = Effect.fnUntraced(function* (
  api: Api,
  blueprint_id: string,
  body: Readonly<Record<string, unknown>> = {}
) {
  const id = yield* create(api, blueprint_id, body)
  yield* becomes(api, id, "offline")
  return id
})

/** Creates a server and waits until it runs. */
export const running = Effect.fnUntraced(function* (
  api: Api,
  blueprint_id: string,
  body: Readonly<Record<string, unknown>> = {}
) {
  const id = yield* create(api, blueprint_id, { ...body, start: true })
  yield* becomes(api, id, "running")
  return id
})

/** The newest page of console lines, oldest first. */
export const logsOf = (
  api: Api,
  id: string,
  query = "per_page=1000"
): Effect.Effect<ReadonlyArray<string>, ServiceFailed> =>
  Effect.map(expectStatus(api, 200, "GET", `/api/servers/${id}/logs?${query}`), (answer) => answer.json.data)

/** Waits until the console has a line. */
export const logsHave = (api: Api, id: string, line: string) =>
  eventually(logsOf(api, id), (lines) => lines.includes(line))
