/** Git repositories of a test, stores that sync from them, and servers for them. */

import { execFileSync, spawn } from "node:child_process"
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import type { IncomingMessage, ServerResponse } from "node:http"
import { createServer } from "node:https"
import { type AddressInfo, createServer as createTcpServer, type Server } from "node:net"
import { dirname, join, resolve } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer, Logger } from "effect"
import { BlueprintStore, SoftwareStore } from "../../../../src/controlPlane/blueprints/BlueprintStore.ts"
import { layerSources, Sources } from "../../../../src/controlPlane/blueprints/sources/Sources.ts"
import type { Files } from "../../../support/definitions.ts"
import { temporaryFolder } from "../../../support/temporaryFolder.ts"
import { blueprintFile } from "../support.ts"

export const tls = resolve(import.meta.dirname, "../../../support/tls")

/** An environment in which git ignores the configuration of the machine. */
const gitEnv = {
  PATH: process.env.PATH ?? "",
  GIT_CONFIG_NOSYSTEM: "1",
  GIT_CONFIG_GLOBAL: "/dev/null",
  GIT_AUTHOR_NAME: "test",
  GIT_AUTHOR_EMAIL: "test@example.com",
  GIT_COMMITTER_NAME: "test",
  GIT_COMMITTER_EMAIL: "test@example.com"
}

export interface Repository {
  readonly folder: string
  /** Runs git in the repository; returns its trimmed output. */
  readonly git: (args: ReadonlyArray<string>, input?: string | Uint8Array) => string
  /** Replaces all files and commits; returns the commit id. */
  readonly commit: (files: Files) => string
  /** Points a branch at a commit of only this tree. */
  readonly commitTree: (branch: string, tree: string) => string
}

/** Makes a repository with a branch `main` and no commit. */
export const makeRepository = (folder: string): Repository => {
  mkdirSync(folder, { recursive: true })
  const git = (args: ReadonlyArray<string>, input?: string | Uint8Array) =>
    execFileSync("git", args, {
      cwd: folder,
      env: gitEnv,
      stdio: ["pipe", "pipe", "pipe"],
      ...(input === undefined ? {} : { input })
    })
      .toString()
      .trim()
  git(["init", "--quiet", "--initial-branch=main"])
  return {
    folder,
    git,
    commit: (files) => {
      git(["rm", "-rfq", "--ignore-unmatch", "."])
      for (const [name, content] of Object.entries(files)) {
        mkdirSync(dirname(join(folder, name)), { recursive: true })
        writeFileSync(join(folder, name), content)
      }
      git(["add", "--all", "--force"])
      git(["commit", "--quiet", "--allow-empty", "--message=x"])
      return git(["rev-parse", "HEAD"])
    },
    commitTree: (branch, tree) => {
      const commit = git(["commit-tree", tree, "-m", "x"])
      git(["update-ref", `refs/heads/${branch}`, commit])
      return commit
    }
  }
}

export interface SourcesSetup {
  readonly root: string
  readonly blueprints: string
  readonly software: string
  readonly data: string
  readonly repository: (name: string) => Repository
  /** Writes the file of sources. */
  readonly list: (sources: ReadonlyArray<Readonly<Record<string, unknown>>>) => void
  readonly file: string
}

/** Folders that are removed when the test ends. */
export const sourcesSetup = Effect.map(temporaryFolder, (root): SourcesSetup => {
  const at = (name: string) => join(root, name)
  mkdirSync(at("blueprints"))
  mkdirSync(at("software"))
  return {
    root,
    blueprints: at("blueprints"),
    software: at("software"),
    data: at("data"),
    repository: (name) => makeRepository(at(name)),
    list: (sources) => writeFileSync(at("sources.yml"), JSON.stringify({ sources })),
    file: at("sources.yml")
  }
})

/** Runs `use` with stores as `muster serve` makes them; adds their log lines, as `Level message`, to `log`. */
export const withStores = <A, E>(
  { blueprints, data, file, software }: SourcesSetup,
  use: Effect.Effect<A, E, BlueprintStore | SoftwareStore>,
  options: {
    readonly log?: Array<string>
    readonly environment?: Readonly<Record<string, string>>
    readonly maxBytes?: number
  } = {}
) => {
  const log = options.log ?? []
  return use.pipe(
    Effect.provide(
      BlueprintStore.layer({ directory: blueprints }).pipe(
        Layer.provideMerge(SoftwareStore.layer({ directory: software })),
        Layer.provideMerge(
          layerSources({
            file,
            dataDir: data,
            folders: { blueprints, software },
            ...(options.maxBytes === undefined ? {} : { maxBytes: options.maxBytes }),
            environment: { PATH: process.env.PATH, ...options.environment }
          })
        ),
        Layer.provideMerge(
          Logger.layer([Logger.make(({ logLevel, message }) => log.push(`${logLevel} ${String(message)}`))])
        ),
        Layer.provideMerge(NodeServices.layer)
      )
    )
  )
}

export const ids = Effect.gen(function* () {
  return (yield* (yield* BlueprintStore).list).map(({ metadata }) => metadata.id)
})

export const reload = Effect.gen(function* () {
  yield* (yield* BlueprintStore).reload
})

/** Returns the definition files and folders of a source's folder. */
export const filesOf = ({ blueprints }: SourcesSetup, destination: string) =>
  readdirSync(join(blueprints, destination), { recursive: true, encoding: "utf8" })
    .filter((name) => !name.startsWith("."))
    .toSorted()

/** Returns the error of the last sync of a source. */
export const errorOf = (id: string) =>
  Effect.gen(function* () {
    const all = yield* (yield* Sources).list
    return all.find((source) => source.id === id)?.error
  })

const closed = (server: { close: (done: () => void) => unknown }) =>
  Effect.callback<void>((resume) => {
    server.close(() => resume(Effect.void))
  })

const listening = <S extends Server | ReturnType<typeof createServer>>(server: S) =>
  Effect.acquireRelease(
    Effect.callback<{ readonly server: S; readonly port: number }>((resume) => {
      server.listen(0, "127.0.0.1", () => {
        // A server that listens on a port has an `AddressInfo`.
        resume(Effect.succeed({ server, port: (server.address() as AddressInfo).port }))
      })
    }),
    ({ server }) =>
      Effect.suspend(() => {
        if ("closeAllConnections" in server) server.closeAllConnections()
        return closed(server)
      })
  )

/** Passes a request to git's own CGI program. */
const backend = (root: string, request: IncomingMessage, response: ServerResponse) => {
  const url = new URL(request.url ?? "/", "https://localhost")
  const child = spawn("git", ["http-backend"], {
    env: {
      ...gitEnv,
      GIT_PROJECT_ROOT: root,
      GIT_HTTP_EXPORT_ALL: "1",
      REQUEST_METHOD: request.method ?? "GET",
      PATH_INFO: url.pathname,
      QUERY_STRING: url.search.slice(1),
      CONTENT_TYPE: request.headers["content-type"] ?? "",
      HTTP_CONTENT_ENCODING: request.headers["content-encoding"] ?? "",
      GIT_PROTOCOL: String(request.headers["git-protocol"] ?? "")
    },
    stdio: ["pipe", "pipe", "ignore"]
  })
  request.pipe(child.stdin)
  child.stdin.on("error", () => {})
  const chunks: Array<Buffer> = []
  child.stdout.on("data", (chunk: Buffer) => chunks.push(chunk))
  child.on("close", () => {
    const output = Buffer.concat(chunks)
    const end = output.indexOf("\r\n\r\n")
    const headers = output.subarray(0, end).toString().split("\r\n")
    const status = headers.find((line) => line.startsWith("Status: "))?.slice(8, 11)
    response.statusCode = Number(status ?? 200)
    for (const line of headers.filter((it) => !it.startsWith("Status: "))) {
      response.setHeader(line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2))
    }
    response.end(output.subarray(end + 4))
  })
}

export interface GitServer {
  readonly url: (repository: string) => string
  /** The Authorization header of each request. */
  readonly logins: ReadonlyArray<string | undefined>
}

/** Serves the repositories below a folder over HTTPS; requires the token if there is one. */
export const gitServer = (
  root: string,
  options: {
    readonly user?: string
    readonly token?: string
    /** Redirects every request to this address. */
    readonly elsewhere?: string
    /** Answers every request with this page. */
    readonly says?: string
  } = {}
) =>
  Effect.gen(function* () {
    const { token, user = "x-access-token" } = options
    const expected = `Basic ${Buffer.from(`${user}:${token}`).toString("base64")}`
    const logins: Array<string | undefined> = []
    const server = createServer(
      { cert: readFileSync(join(tls, "cert.pem")), key: readFileSync(join(tls, "key.pem")) },
      (request, response) => {
        logins.push(request.headers.authorization)
        if (options.elsewhere !== undefined) {
          response.writeHead(302, { location: `${options.elsewhere}${request.url}` }).end()
        } else if (options.says !== undefined) {
          response.writeHead(200, { "content-type": "text/html" }).end(options.says)
        } else if (token !== undefined && request.headers.authorization !== expected) {
          response.writeHead(401, { "www-authenticate": "Basic realm=git" }).end("who are you?\n")
        } else backend(root, request, response)
      }
    )
    const { port } = yield* listening(server)
    return { url: (repository) => `https://127.0.0.1:${port}/${repository}`, logins } satisfies GitServer
  })

/** A server that accepts every connection and never answers; returns its port and the number of connections. */
export const silentServer = Effect.gen(function* () {
  const sockets = new Set<{ destroy: () => unknown }>()
  const server = createTcpServer((socket) => {
    sockets.add(socket)
    socket.on("error", () => {})
  })
  const { port } = yield* listening(server)
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      for (const socket of sockets) socket.destroy()
    })
  )
  return { port, connections: () => sockets.size }
})

export const remove = (path: string) => rmSync(path, { recursive: true, force: true })

/** A setup with the source `s`, whose repository has the blueprint `a`. */
export const oneSource = Effect.gen(function* () {
  const setup = yield* sourcesSetup
  const repository = setup.repository("r")
  repository.commit({ "a.yml": blueprintFile("a") })
  setup.list([{ id: "s", url: repository.folder }])
  return { repository, setup }
})
