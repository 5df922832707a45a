import { readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { framed, init, long, openRaw, packet, text, word } from "../controlPlane/sftp/support/rawSftp.ts"
import { sftpService } from "../controlPlane/sftp/support/sftp.ts"
import { eventually } from "../support/eventually.ts"
import { Muster } from "../support/Muster.ts"
import type { Service } from "../support/Service.ts"
import { expectStatus, installed } from "../support/servers.ts"

const [OPEN, CLOSE, READ, WRITE, LSTAT, FSTAT, SETSTAT, FSETSTAT, OPENDIR, READDIR] = [
  3, 4, 5, 6, 7, 8, 9, 10, 11, 12
]
const [REMOVE, MKDIR, RMDIR, REALPATH, STAT, RENAME, READLINK, SYMLINK, EXTENDED] = [
  13, 14, 15, 16, 17, 18, 19, 20, 200
]
const [STATUS, HANDLE] = [101, 102]
const [OK, EOF, NO_SUCH_FILE, FAILURE, BAD_MESSAGE, UNSUPPORTED] = [0, 1, 2, 4, 5, 8]
const [READABLE, WRITABLE, CREATED] = [1, 2, 8]
const none = word(0)
const MIB = 2 ** 20

const residentMiB = ({ process: { pid } }: Service) =>
  Number(/^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024

/** A server and a session that has begun. */
const begun = Effect.gen(function* () {
  const muster = yield* Muster
  const id = yield* installed(muster, "kept")
  const folder = join(muster.dataDir, "node", "servers", id, "files")
  const raw = yield* openRaw(muster, id, muster.key)
  yield* raw.ask(init)
  let last = 0
  /** Returns the code of the status that answers a request; of another answer, its type. */
  const codeOf = Effect.fnUntraced(function* (type: number, ...fields: ReadonlyArray<Uint8Array>) {
    last += 1
    const answer = yield* raw.ask(packet(type, last, ...fields))
    if (answer === "closed") return answer
    assert.strictEqual(answer.id, last)
    return answer.type === STATUS ? answer.code : `type ${answer.type}`
  })
  const handleOf = Effect.fnUntraced(function* (path: string, flags: number) {
    last += 1
    const answer = yield* raw.ask(packet(OPEN, last, text(path), word(flags), none))
    assert.isTrue(answer !== "closed" && answer.type === HANDLE)
    return answer === "closed" ? Buffer.alloc(0) : Buffer.from(answer.body)
  })
  return { muster, id, folder, raw, codeOf, handleOf }
})

layer(sftpService(), { excludeTestServices: true, timeout: "120 seconds" })("packets of SFTP", (it) => {
  describe("spec 10.6: malformed requests", () => {
    it.effect("each request that is cut off at any field has a status, and the session continues", () =>
      Effect.gen(function* () {
        const { codeOf, handleOf } = yield* begun
        const handle = yield* handleOf("/server.sh", READABLE)
        const path = text("/none")
        const whole: ReadonlyArray<readonly [number, ReadonlyArray<Buffer>]> = [
          [OPEN, [path, word(CREATED | WRITABLE), word(1), long(1n)]],
          [CLOSE, [text("x")]],
          [READ, [handle, long(0n), word(10)]],
          [WRITE, [handle, long(0n), text("x")]],
          [LSTAT, [path]],
          [FSTAT, [text("x")]],
          [SETSTAT, [path, word(8), word(1), word(1)]],
          [FSETSTAT, [handle, word(4), word(1)]],
          [OPENDIR, [path]],
          [READDIR, [text("x")]],
          [REMOVE, [path]],
          [MKDIR, [path, word(4), word(1)]],
          [RMDIR, [path]],
          [REALPATH, [path]],
          [STAT, [path]],
          [RENAME, [path, path]],
          [EXTENDED, [text("posix-rename@openssh.com"), path, path]],
          [EXTENDED, [text("statvfs@openssh.com"), path]],
          [EXTENDED, [text("fstatvfs@openssh.com"), text("x")]],
          [EXTENDED, [text("fsync@openssh.com"), text("x")]],
          [EXTENDED, [text("copy-data"), handle, long(0n), long(0n), handle, long(0n)]]
        ]
        for (const [type, fields] of whole) {
          const body = Buffer.concat(fields)
          for (let length = 0; length < body.length; length += 1) {
            const code = yield* codeOf(type, body.subarray(0, length))
            assert.include([FAILURE, BAD_MESSAGE, UNSUPPORTED], code, `type ${type}, ${length} bytes`)
          }
        }
        assert.strictEqual(yield* codeOf(FSTAT, handle), "type 105")
      }).pipe(Effect.scoped)
    )

    it.effect("unknown types and extensions, links and a second INIT have a status", () =>
      Effect.gen(function* () {
        const { codeOf, raw } = yield* begun
        for (const type of [0, 2, READLINK, SYMLINK, 21, 22, 100, STATUS, 199, 201, 255])
          assert.strictEqual(yield* codeOf(type, text("/a"), text("/b")), UNSUPPORTED, `type ${type}`)
        for (const name of [
          "",
          "hardlink@openssh.com",
          "lsetstat@openssh.com",
          "users-groups-by-id@openssh.com"
        ])
          assert.strictEqual(yield* codeOf(EXTENDED, text(name), text("/a"), text("/b")), UNSUPPORTED, name)
        assert.deepInclude(yield* raw.ask(init), { type: STATUS, id: 3, code: UNSUPPORTED })
        assert.strictEqual(yield* codeOf(LSTAT, text("/")), "type 105")
      }).pipe(Effect.scoped)
    )

    it.effect("offsets and lengths up to 2^64 have a status and change nothing", () =>
      Effect.gen(function* () {
        const { codeOf, folder, handleOf } = yield* begun
        const handle = yield* handleOf("/offsets", READABLE | WRITABLE | CREATED)
        for (const offset of [2n ** 53n - 1n, 2n ** 53n, 2n ** 63n - 1n, 2n ** 63n, 2n ** 64n - 1n]) {
          assert.include([EOF, BAD_MESSAGE], yield* codeOf(READ, handle, long(offset), word(0xffff_ffff)))
          assert.include([FAILURE, BAD_MESSAGE], yield* codeOf(WRITE, handle, long(offset), text("x")))
          assert.include([FAILURE, BAD_MESSAGE], yield* codeOf(FSETSTAT, handle, word(1), long(offset)))
          assert.include(
            [FAILURE, BAD_MESSAGE],
            yield* codeOf(SETSTAT, text("/offsets"), word(1), long(offset))
          )
        }
        assert.strictEqual(yield* codeOf(READ, handle, long(0n), word(0xffff_ffff)), EOF)
        // Once a write found no room, later ones to this handle fail, too.
        const fresh = yield* handleOf("/offsets", READABLE | WRITABLE)
        assert.strictEqual(yield* codeOf(WRITE, fresh, long(0n), text("whole")), OK)
        assert.strictEqual(yield* codeOf(READ, fresh, long(0n), word(0xffff_ffff)), "type 103")
        assert.strictEqual(readFileSync(join(folder, "offsets"), "utf8"), "whole")
      }).pipe(Effect.scoped)
    )

    it.effect("handles that are closed, invented, of a folder or of another session are refused", () =>
      Effect.gen(function* () {
        const { codeOf, handleOf, id, muster, raw } = yield* begun
        const [handle, closed] = [yield* handleOf("/server.sh", READABLE), yield* handleOf("/server.sh", 1)]
        assert.strictEqual(yield* codeOf(CLOSE, closed), OK)
        const opened = yield* raw.ask(packet(OPENDIR, 999, text("/")))
        assert.isTrue(opened !== "closed" && opened.type === HANDLE)
        const listed = opened === "closed" ? Buffer.alloc(0) : Buffer.from(opened.body)
        const other = yield* openRaw(muster, id, muster.key)
        yield* other.ask(init)
        const foreign = yield* other.ask(packet(READ, 1, handle, long(0n), word(1)))
        assert.deepInclude(foreign, { type: STATUS, id: 1, code: FAILURE })
        const invented = ["", "0", "-1", "__proto__", "constructor", "1 ", "01", "x".repeat(200_000)].map(
          text
        )
        for (const bad of [closed, listed, ...invented]) {
          assert.strictEqual(yield* codeOf(READ, bad, long(0n), word(1)), FAILURE)
          assert.strictEqual(yield* codeOf(WRITE, bad, long(0n), text("x")), FAILURE)
          assert.strictEqual(yield* codeOf(FSETSTAT, bad, none), FAILURE)
        }
        for (const bad of [closed, handle, ...invented])
          assert.strictEqual(yield* codeOf(READDIR, bad), FAILURE)
        for (const bad of [closed, ...invented]) assert.strictEqual(yield* codeOf(CLOSE, bad), FAILURE)
        assert.strictEqual(yield* codeOf(READ, handle, long(0n), word(1)), "type 103")
      }).pipe(Effect.scoped)
    )

    it.effect("paths with NUL, `..`, 64 KiB names and other encodings stay in the server", () =>
      Effect.gen(function* () {
        const { codeOf, folder } = yield* begun
        writeFileSync(join(folder, "..", "beside"), "of the node")
        const outside = ["/../beside", "../../beside", "/a/../../../beside", "..\\beside", "/./../beside"]
        for (const path of outside)
          assert.strictEqual(yield* codeOf(OPEN, text(path), word(READABLE), none), NO_SUCH_FILE, path)
        const long = "n".repeat(64 * 1024)
        for (const path of [
          "/server.sh\0",
          "\0",
          `/${long}`,
          `/${"n".repeat(256)}`,
          "/n".repeat(65),
          "/n".repeat(9000)
        ]) {
          for (const type of [OPENDIR, LSTAT, REMOVE, RMDIR])
            assert.strictEqual(yield* codeOf(type, text(path)), FAILURE)
          assert.strictEqual(yield* codeOf(MKDIR, text(path), none), FAILURE)
          assert.strictEqual(yield* codeOf(RENAME, text("/server.sh"), text(path)), FAILURE)
          assert.strictEqual(yield* codeOf(OPEN, text(path), word(WRITABLE | CREATED), none), FAILURE)
        }
        // Bytes that are not UTF-8 are a name as any other.
        for (const hex of ["ff80", "eda080", "c0af"]) {
          const name = Buffer.from(hex, "hex")
          const opened = yield* codeOf(OPEN, text(name), word(WRITABLE | CREATED), none)
          assert.strictEqual(opened, `type ${HANDLE}`)
          assert.isTrue(readdirSync(folder, { encoding: "buffer" }).some((one) => one.equals(name)))
        }
        assert.strictEqual(yield* codeOf(LSTAT, text("/server.sh")), "type 105")
        assert.strictEqual(readFileSync(join(folder, "..", "beside"), "utf8"), "of the node")
      }).pipe(Effect.scoped)
    )
  })

  describe("spec 10.6: broken sessions", () => {
    it.effect("a broken length, and a request before INIT, end the subsystem, and others continue", () =>
      Effect.gen(function* () {
        const { codeOf, id, muster } = yield* begun
        const breaks = [
          [word(0)],
          [word(0xffff_ffff), Buffer.from([17])],
          [word(256 * 1024 + 1), Buffer.from([17])],
          [init, word(0)],
          [init, framed(Buffer.from([STAT]), Buffer.alloc(3))],
          [packet(OPENDIR, 1, text("/"))],
          [packet(255, 1)]
        ]
        for (const bytes of breaks) {
          const raw = yield* openRaw(muster, id, muster.key)
          yield* raw.send(...bytes, init, init, packet(STAT, 5, text("/")))
          let answer = yield* raw.next
          // Nothing after the break is answered.
          while (answer !== "closed") {
            assert.strictEqual(answer.type, 2)
            answer = yield* raw.next
          }
        }
        assert.strictEqual(yield* codeOf(STAT, text("/")), "type 105")
      }).pipe(Effect.scoped)
    )

    it.effect("a packet that never ends, and bytes after a break, take no memory", () =>
      Effect.gen(function* () {
        const { codeOf, id, muster } = yield* begun
        const piece = Buffer.alloc(32 * 1024)
        /** Sends 48 MiB after these bytes, without regard to windows and closed channels. */
        const flood = Effect.fnUntraced(function* (bytes: ReadonlyArray<Uint8Array>) {
          const { channel, client, send } = yield* openRaw(muster, id, muster.key)
          // A channel of the client sends nothing once the service has closed it.
          const { _protocol: protocol, _sock: socket } = Object.fromEntries(Object.entries(client))
          const { id: to } = Object.fromEntries(Object.entries(channel)).outgoing
          yield* send(...bytes)
          for (let mib = 0; mib < 48 && !socket.destroyed; mib += 1) {
            for (let sent = 0; sent < MIB; sent += piece.length) protocol.channelData(to, piece)
            yield* eventually(
              () => socket.writableLength === 0 || socket.destroyed,
              (isSent) => isSent
            )
          }
        }, Effect.scoped)
        yield* flood([word(0)])
        const before = residentMiB(muster)
        for (const bytes of [[word(0)], [word(0xffff_ffff)], [init, word(0)], [init, word(200_000)]])
          yield* Effect.replicateEffect(flood(bytes), 2, { concurrency: 2 })
        assert.isBelow(residentMiB(muster) - before, 96)
        assert.strictEqual(yield* codeOf(STAT, text("/")), "type 105")
      }).pipe(Effect.scoped)
    )

    it.effect("a packet, and a session that waits, take little memory in messages of one byte, too", () =>
      Effect.gen(function* () {
        const { folder, handleOf, id, muster, raw } = yield* begun
        const byte = Buffer.from([0])
        /** Sends messages of one byte, without regard to windows. */
        const trickle = Effect.fnUntraced(function* (session: typeof raw, count: number) {
          const { _protocol: protocol, _sock: socket } = Object.fromEntries(Object.entries(session.client))
          const { id: to } = Object.fromEntries(Object.entries(session.channel)).outgoing
          // Several in a segment: the service receives as many messages.
          session.client.setNoDelay(false)
          for (let sent = 0; sent < count && !socket.destroyed; sent += 1) {
            protocol.channelData(to, byte)
            if (sent % 1000 === 0)
              yield* eventually(
                () => socket.writableLength === 0 || socket.destroyed,
                (isSent) => isSent
              )
          }
        })
        const before = residentMiB(muster)
        const slow = yield* openRaw(muster, id, muster.key)
        yield* slow.ask(init)
        yield* slow.send(word(200_000))
        yield* trickle(slow, 190_000)
        assert.isBelow(residentMiB(muster) - before, 40)
        yield* slow.send(Buffer.alloc(10_000))
        // Its type is 0.
        assert.deepInclude(yield* slow.next, { type: STATUS, code: UNSUPPORTED })
        writeFileSync(join(folder, "large"), Buffer.alloc(4 * MIB))
        const handle = yield* handleOf("/large", READABLE)
        // Nothing is read, so that the session waits with requests, and the channel with messages.
        raw.channel.pause()
        const reads = Array.from({ length: 14_000 }, (_, request) =>
          packet(READ, request, handle, long(0n), word(200_000))
        )
        yield* raw.send(...reads)
        yield* trickle(raw, 250_000)
        assert.isBelow(residentMiB(muster) - before, 60)
        raw.client.end()
        const other = yield* openRaw(muster, id, muster.key)
        assert.deepInclude(yield* other.ask(init), { type: 2 })
      }).pipe(Effect.scoped)
    )

    it.effect("thousands of requests to open files at once get at most 64 handles", () =>
      Effect.gen(function* () {
        const { codeOf, muster, raw } = yield* begun
        const count = 3000
        const open = (id: number) =>
          packet(id % 2 === 0 ? OPEN : OPENDIR, id, text(id % 2 === 0 ? "/server.sh" : "/"), word(1), none)
        yield* raw.send(...Array.from({ length: count }, (_, id) => open(id)))
        let handles = 0
        for (let id = 0; id < count; id += 1) {
          const answer = yield* raw.next
          assert.isTrue(answer !== "closed" && answer.id === id)
          if (answer !== "closed" && answer.type === HANDLE) handles += 1
        }
        assert.strictEqual(handles, 64)
        for (let handle = 1; handle <= 64; handle += 1)
          assert.strictEqual(yield* codeOf(CLOSE, text(String(handle))), OK)
        yield* expectStatus(muster, 200, "GET", "/api/system")
      }).pipe(Effect.scoped)
    )
  })
})
