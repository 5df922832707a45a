/** GNU tar archives, built byte by byte so that they can be invalid. */

export interface Member {
  readonly name: string
  readonly type?: string
  readonly link?: string
  readonly content?: string
  readonly size?: number
  readonly magic?: string
  readonly mode?: number
  /** The raw bytes of the size and time fields. */
  readonly rawSize?: ReadonlyArray<number>
  readonly rawTime?: ReadonlyArray<number>
  /** The map of a sparse file: its pieces, whether the map continues in the next block, the size of the file. */
  readonly sparse?: {
    readonly pieces?: ReadonlyArray<readonly [number, number]>
    readonly more?: boolean
    readonly whole: number
  }
}

const octal = (value: number, length: number) => `${value.toString(8).padStart(length - 1, "0")}\0`

/** One member of an archive. */
export const member = ({
  content = "",
  link = "",
  magic = "ustar  \0",
  name,
  size,
  type = "0",
  ...rest
}: Member): Buffer => {
  const header = Buffer.alloc(512)
  header.write(name, 0, 100, "latin1")
  header.write(octal(rest.mode ?? (type === "5" ? 0o755 : 0o644), 8), 100)
  header.write(octal(0, 8), 108)
  header.write(octal(0, 8), 116)
  header.write(octal(size ?? content.length, 12), 124)
  header.set(rest.rawSize ?? [], 124)
  header.write(octal(1_000_000_000, 12), 136)
  header.set(rest.rawTime ?? [], 136)
  header.write("        ", 148)
  header.write(type, 156)
  header.write(link, 157, 100, "latin1")
  header.write(magic, 257, "latin1")
  // The device number of a device member.
  if (type === "3" || type === "4") header.write(`${octal(1, 8)}${octal(3, 8)}`, 329)
  if (rest.sparse !== undefined) {
    for (const [index, [at, length]] of (rest.sparse.pieces ?? []).entries()) {
      header.write(`${octal(at, 12)}${octal(length, 12)}`, 386 + index * 24)
    }
    header[482] = rest.sparse.more === true ? 1 : 0
    header.write(octal(rest.sparse.whole, 12), 483)
  }
  const sum = header.reduce((all, byte) => all + byte, 0)
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148)
  const body = Buffer.alloc(Math.ceil(content.length / 512) * 512)
  body.write(content, "latin1")
  return Buffer.concat([header, body])
}
/** A sparse file without contents, whose map claims to continue in the next block. */
export const swallowing = (whole = 0) =>
  member({ name: "./s", type: "S", size: 0, sparse: { more: true, whole } })
export const long = (name: string): Buffer =>
  member({ name: "././@LongLink", type: "L", content: `${name}\0` })
export const root = member({ name: "./", type: "5" })
const end = Buffer.alloc(1024)
export const archive = (...members: ReadonlyArray<Buffer>) => Buffer.concat([root, ...members, end])
