/** An S3 server of the Python package index (moto). */
import { execFileSync } from "node:child_process"
import { existsSync, mkdtempSync, renameSync, rmSync } from "node:fs"
import { createServer, type IncomingMessage, request, type Server } from "node:http"
import { AwsV4Signer } from "aws4fetch"
import { Effect, Schema } from "effect"
import type { S3Access } from "../../src/contract/domain/BackupTarget.ts"
import { startChild } from "./child.ts"
import { ServiceFailed } from "./Service.ts"
import { temporaryFolder } from "./temporaryFolder.ts"

const VERSION = "5.2.2"
const packages = `/tmp/muster-test-moto-${VERSION}`

const install = (): boolean => {
  if (existsSync(packages)) return true
  const aside = mkdtempSync(`${packages}-`)
  try {
    const wanted = `moto[server,s3]==${VERSION}`
    execFileSync("python3", ["-m", "pip", "install", "--quiet", "--target", aside, wanted], {
      stdio: "ignore"
    })
    // Two tests may install it at once; each has a complete one.
    if (!existsSync(packages)) renameSync(aside, packages)
    return true
  } catch {
    return false
  } finally {
    rmSync(aside, { recursive: true, force: true })
  }
}

const isInstalled = install()

/** Whether tests that need the server run, and what their titles say if not; in CI it is required. */
export const s3 = {
  run: isInstalled || process.env.CI !== undefined,
  note: isInstalled ? "" : " (skipped: needs python3 with pip, and moto of PyPI)"
}

const BUCKET = "backups"
const REGION = "eu-west-1"
const form = { "content-type": "application/x-www-form-urlencoded" }
/** Credentials for the time in which the server checks none. */
const nobody = { accessKeyId: "none", secretAccessKey: "none", region: REGION }

const keyPattern = /<AccessKeyId>(.*?)<\/AccessKeyId>[\s\S]*<SecretAccessKey>(.*?)<\/SecretAccessKey>/
const readKey = Schema.decodeUnknownSync(Schema.Tuple([Schema.String, Schema.String, Schema.String]))

/** Starts a server with one bucket and one user, and returns its target. */
export const startS3Server = Effect.gen(function* () {
  const cwd = yield* temporaryFolder
  const server = yield* startChild(["python3", "-m", "moto.server", "-p", "0", "-H", "127.0.0.1"], {
    cwd,
    env: { PYTHONPATH: packages, PYTHONUNBUFFERED: "1", AWS_DEFAULT_REGION: REGION }
  })
  const [, url = ""] = yield* server.prints(/Running on (http:\/\/127\.0\.0\.1:\d+)/, "60 seconds")
  const call = (
    service: string,
    path: string,
    {
      key = nobody,
      ...init
    }: {
      readonly method: string
      readonly body?: string | Uint8Array<ArrayBuffer>
      readonly key?: typeof nobody
    }
  ) =>
    Effect.promise(() =>
      new AwsV4Signer({
        url: url + path,
        service,
        ...(service === "iam" ? { headers: form } : {}),
        ...key,
        ...init
      })
        .sign()
        .then(({ body, headers, method, url }) =>
          fetch(url, { method, headers, ...(body == null ? {} : { body }) })
        )
        .then((response) => response.text())
    )
  const iam = (parameters: Readonly<Record<string, string>>) =>
    call("iam", "/", {
      method: "POST",
      body: new URLSearchParams({ ...parameters, Version: "2010-05-08" }).toString()
    })
  const allowed = { Effect: "Allow", Action: "s3:*", Resource: "*" }
  yield* iam({ Action: "CreateUser", UserName: "muster" })
  yield* iam({
    Action: "PutUserPolicy",
    UserName: "muster",
    PolicyName: "s3",
    PolicyDocument: JSON.stringify({ Version: "2012-10-17", Statement: [allowed] })
  })
  const created = yield* iam({ Action: "CreateAccessKey", UserName: "muster" })
  const [, accessKeyId, secretAccessKey] = readKey(keyPattern.exec(created)?.slice())
  const location = `<CreateBucketConfiguration><LocationConstraint>${REGION}</LocationConstraint></CreateBucketConfiguration>`
  const made = yield* call("s3", `/${BUCKET}`, { method: "PUT", body: location })
  if (made.includes("<Error>")) return yield* new ServiceFailed({ message: `no bucket: ${made}` })
  const key = { accessKeyId, secretAccessKey, region: REGION }
  const access: S3Access = {
    type: "s3",
    endpoint: url,
    region: REGION,
    bucket: BUCKET,
    prefix: "muster/one",
    access_key_id: accessKeyId,
    secret_access_key: secretAccessKey,
    path_style: true,
    allow_private: true
  }
  return {
    access,
    output: server.output,
    /** Turns the check of signatures on or off. The check refuses valid lists, because the server decodes their query. */
    checks: (isOn: boolean) =>
      call("s3", "/moto-api/reset-auth", { method: "POST", body: isOn ? "0" : "1000000000" }),
    /** The keys of all objects. */
    keys: Effect.map(call("s3", `/${BUCKET}?list-type=2`, { method: "GET", key }), (xml) =>
      [...xml.matchAll(/<Key>(.*?)<\/Key>/g)].map(([, name = ""]) => name).toSorted()
    ),
    read: (name: string) => call("s3", `/${BUCKET}/${name}`, { method: "GET", key }),
    write: (name: string, body: string | Uint8Array<ArrayBuffer>) =>
      call("s3", `/${BUCKET}/${name}`, { method: "PUT", key, body })
  }
})

/** Has a server listen until the scope closes; returns its address. */
export const listening = Effect.fnUntraced(function* (server: Server) {
  yield* Effect.acquireRelease(
    Effect.callback<void>((resume) => void server.listen(0, "127.0.0.1", () => resume(Effect.void))),
    () =>
      Effect.sync(() => {
        server.closeAllConnections()
        server.close()
      })
  )
  const address = server.address()
  return `http://127.0.0.1:${typeof address === "object" ? address?.port : ""}`
})

/** How a front answers a request instead of its server. */
type Answer = { readonly status: number; readonly code: string } | undefined

/** Starts a front of an HTTP server, which answers the requests that a rule selects; returns its address. */
export const startFront = Effect.fnUntraced(function* (
  to: string,
  rule: (request: IncomingMessage) => Answer
) {
  const server = createServer((incoming, outgoing) => {
    const answer = rule(incoming)
    if (answer !== undefined) {
      // A client sends its whole body before it reads an answer.
      incoming.resume().once("end", () => {
        outgoing.writeHead(answer.status).end(`<Error><Code>${answer.code}</Code></Error>`)
      })
      return
    }
    const { headers, method, url } = incoming
    const passed = request(to + url, { headers, method }, (response) => {
      outgoing.writeHead(response.statusCode ?? 0, response.headers)
      response.pipe(outgoing)
    })
    passed.once("error", () => outgoing.destroy())
    incoming.pipe(passed)
  })
  return yield* listening(server)
})
