//! The little of bpf(2) that is needed, and an assembler, so that building takes no C compiler.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::error::PortError;
use crate::parcel::Parcel;
use crate::sys::new_fd;

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const MAP_DELETE: libc::c_int = 3;
const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
const LINK_UPDATE: libc::c_int = 29;
const LINK_DETACH: libc::c_int = 34;

/// Map types of the kernel.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(crate) enum MapKind {
    Hash = 1,
    Array = 2,
    PerCpuArray = 6,
    XskMap = 17,
}

/// Program types of the kernel.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(crate) enum ProgramKind {
    SchedCls = 3,
    Xdp = 6,
}

/// Places a program can be linked to.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(crate) enum AttachType {
    Xdp = 37,
    TcxIngress = 46,
    TcxEgress = 47,
}

/// `BPF_F_MMAPABLE`: the map's values can be mapped into memory.
pub(crate) const MMAPABLE: u32 = 1 << 10;
/// `BPF_F_XDP_HAS_FRAGS`: the program copes with frames in several pieces, so the device's MTU may
/// exceed a page.
pub(crate) const XDP_HAS_FRAGS: u32 = 1 << 5;

/// The kernel takes a union; every command used here fits into these words, and unused ones are
/// zero.
type Attributes = [u64; 18];

fn bpf(command: libc::c_int, attributes: &mut Attributes) -> io::Result<libc::c_int> {
    // SAFETY: the attributes are longer than any command used here reads, zero where not set, and
    // the addresses among them were made by the callers below from buffers that live until the call
    // returns and are as long as the command reads (or, for the verifier's log, writes).
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            attributes.as_mut_ptr(),
            size_of::<Attributes>() as libc::c_uint,
        )
    } as libc::c_int;
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Two 32-bit members of the union that share a word.
const fn pair(first: u32, second: u32) -> u64 {
    u64::from_ne_bytes({
        let (a, b) = (first.to_ne_bytes(), second.to_ne_bytes());
        [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]]
    })
}

fn address<T: ?Sized>(of: &T) -> u64 {
    std::ptr::from_ref(of).cast::<u8>() as u64
}

/// Old kernels answer as if a privilege were missing when the memory of maps may not be locked, to
/// root as well.
const CREATING: &str =
    "creating a BPF map (before Linux 5.11 that needs `ulimit -l unlimited`, too)";

/// A map; the kernel frees it with its last user.
#[derive(Debug)]
pub(crate) struct Map {
    fd: OwnedFd,
    key: usize,
    value: usize,
}

impl Map {
    pub(crate) fn create(
        kind: MapKind,
        key: u32,
        value: u32,
        entries: u32,
        flags: u32,
    ) -> Result<Self, PortError> {
        let mut attributes: Attributes = [0; 18];
        attributes[0] = pair(kind as u32, key);
        attributes[1] = pair(value, entries);
        attributes[2] = pair(flags, 0);
        let fd = bpf(MAP_CREATE, &mut attributes)
            .and_then(new_fd)
            .map_err(|error| PortError::from_io(CREATING, error))?;
        Ok(Self { fd, key: key as usize, value: value as usize })
    }

    pub(crate) fn insert(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        assert!(key.len() == self.key && value.len() == self.value, "sizes as created");
        let mut attributes: Attributes = [0; 18];
        attributes[0] = pair(self.fd.as_raw_fd() as u32, 0);
        attributes[1] = address(key);
        attributes[2] = address(value);
        bpf(MAP_UPDATE, &mut attributes).map(drop)
    }

    pub(crate) fn remove(&self, key: &[u8]) -> io::Result<()> {
        assert_eq!(key.len(), self.key, "size as created");
        let mut attributes: Attributes = [0; 18];
        attributes[0] = pair(self.fd.as_raw_fd() as u32, 0);
        attributes[1] = address(key);
        bpf(MAP_DELETE, &mut attributes).map(drop)
    }

    /// Puts it into a parcel for another process.
    pub(crate) fn pass_on(&self, parcel: &mut Parcel) -> Result<(), PortError> {
        parcel.put_file(self.fd.as_fd())
    }

    /// The map of another process, of keys and values of these sizes.
    pub(crate) fn adopt(key: u32, value: u32, parcel: &mut Parcel) -> Result<Self, PortError> {
        let fd = parcel.take_file()?;
        Ok(Self { fd, key: key as usize, value: value as usize })
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A program that the verifier has accepted.
#[derive(Debug)]
pub(crate) struct Program {
    fd: OwnedFd,
}

impl Program {
    pub(crate) fn load(
        kind: ProgramKind,
        name: &'static str,
        instructions: &[u64],
        flags: u32,
    ) -> Result<Self, PortError> {
        let license = c"Dual MIT/GPL";
        let mut log = Vec::new();
        // The log is asked for only after a failure: with it, loading is slower and can fail for
        // want of room.
        for attempt in 0..2 {
            let mut attributes: Attributes = [0; 18];
            attributes[0] = pair(kind as u32, instructions.len() as u32);
            attributes[1] = address(instructions);
            attributes[2] = license.as_ptr() as u64;
            if attempt == 1 {
                log = vec![0u8; 1 << 16];
                attributes[3] = pair(1, log.len() as u32);
                attributes[4] = log.as_mut_ptr() as u64;
            }
            attributes[5] = pair(0, flags);
            let mut text = [0; 16];
            text[..name.len().min(15)].copy_from_slice(&name.as_bytes()[..name.len().min(15)]);
            attributes[6] = u64::from_ne_bytes(text[..8].try_into().expect("eight bytes"));
            attributes[7] = u64::from_ne_bytes(text[8..].try_into().expect("eight bytes"));
            match bpf(PROG_LOAD, &mut attributes).and_then(new_fd) {
                Ok(fd) => return Ok(Self { fd }),
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                    return Err(PortError::from_io(format!("loading the {name} program"), error));
                }
                Err(_) if attempt == 0 => {}
                Err(source) => {
                    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
                    let log = String::from_utf8_lossy(&log[..end]);
                    let lines: Vec<_> = log.lines().collect();
                    let log = lines[lines.len().saturating_sub(12)..].join("\n");
                    return Err(PortError::Verifier { program: name, source, log });
                }
            }
        }
        unreachable!("the second attempt returns")
    }

    /// Links the program to an interface of the calling thread's namespace. The link ends when its
    /// last descriptor is closed, at the latest with the process.
    pub(crate) fn link(&self, ifindex: u32, to: AttachType, flags: u32) -> io::Result<Link> {
        let mut attributes: Attributes = [0; 18];
        attributes[0] = pair(self.fd.as_raw_fd() as u32, ifindex);
        attributes[1] = pair(to as u32, flags);
        let fd = new_fd(bpf(LINK_CREATE, &mut attributes)?)?;
        Ok(Link::at_end(fd))
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Descriptors of links begin here. The kernel closes the highest ones first when a process is
/// killed, and each socket that it closes before keeps packets away for some milliseconds more.
const FIRST_CLOSED: i32 = 960;

/// A program at work; dropping it detaches the program.
#[derive(Debug)]
pub(crate) struct Link {
    fd: OwnedFd,
}

impl Link {
    /// What a limit on descriptors refuses is only sooner or later.
    fn at_end(fd: OwnedFd) -> Self {
        Self { fd: rustix::io::fcntl_dupfd_cloexec(&fd, FIRST_CLOSED).unwrap_or(fd) }
    }

    /// Puts it into a parcel for another process. Whoever does must not drop it afterwards, which
    /// would detach the program: [`std::mem::forget`].
    pub(crate) fn pass_on(&self, parcel: &mut Parcel) -> Result<(), PortError> {
        parcel.put_file(self.fd.as_fd())
    }

    /// The link of another process.
    pub(crate) fn adopt(parcel: &mut Parcel) -> Result<Self, PortError> {
        parcel.take_file().map(Self::at_end)
    }

    /// The same, with another program in the place of that which it has: no frame sees both, or
    /// none.
    pub(crate) fn adopt_for(parcel: &mut Parcel, program: &Program) -> Result<Self, PortError> {
        let link = Self::adopt(parcel)?;
        link.update(program)?;
        Ok(link)
    }

    fn update(&self, program: &Program) -> Result<(), PortError> {
        let mut attributes: Attributes = [0; 18];
        attributes[0] = pair(self.fd.as_raw_fd() as u32, program.fd.as_raw_fd() as u32);
        bpf(LINK_UPDATE, &mut attributes)
            .map(drop)
            .map_err(|error| PortError::from_io("replacing the program of another process", error))
    }
}

impl Drop for Link {
    /// Closing the descriptor is not enough: where another thread is just starting a program, the
    /// new process holds a copy of it for a moment, and the program would stay for so long. If it
    /// is gone with its interface there is nothing to detach.
    fn drop(&mut self) {
        let mut attributes: Attributes = [0; 18];
        attributes[0] = pair(self.fd.as_raw_fd() as u32, 0);
        let _ = bpf(LINK_DETACH, &mut attributes);
    }
}

/// A register.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Reg(pub(crate) u8);

/// The frame pointer: the stack lies below it.
pub(crate) const FP: Reg = Reg(10);

/// Width of a load or store.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum Width {
    B1 = 0x10,
    B2 = 0x08,
    B4 = 0x00,
    B8 = 0x18,
}

/// Conditions of a jump, unsigned where not said otherwise.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum If {
    Equal = 0x10,
    Greater = 0x20,
    NotEqual = 0x50,
    GreaterSigned = 0x60,
}

/// A place to jump to, forward only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label(usize);

/// Puts instructions together. Each is eight bytes: opcode, registers, offset, immediate.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    code: Vec<u64>,
    labels: Vec<Option<usize>>,
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    fn emit(&mut self, op: u8, dst: Reg, src: u8, offset: i16, immediate: i32) -> &mut Self {
        let (offset, immediate) = (offset.to_ne_bytes(), immediate.to_ne_bytes());
        // The two registers share a byte as bit fields, whose order follows the byte order of the
        // machine.
        let registers =
            if cfg!(target_endian = "little") { src << 4 | dst.0 } else { dst.0 << 4 | src };
        self.code.push(u64::from_ne_bytes([
            op,
            registers,
            offset[0],
            offset[1],
            immediate[0],
            immediate[1],
            immediate[2],
            immediate[3],
        ]));
        self
    }

    /// `dst = src`
    pub(crate) fn copy(&mut self, dst: Reg, src: Reg) -> &mut Self {
        self.emit(0xbf, dst, src.0, 0, 0)
    }

    /// `dst = value`, sign-extended
    pub(crate) fn set(&mut self, dst: Reg, value: i32) -> &mut Self {
        self.emit(0xb7, dst, 0, 0, value)
    }

    /// `dst = value`, 64 bits
    pub(crate) fn set_wide(&mut self, dst: Reg, value: i64) -> &mut Self {
        self.emit(0x18, dst, 0, 0, value as i32).emit(0, Reg(0), 0, 0, (value >> 32) as i32)
    }

    /// `dst += value`
    pub(crate) fn add(&mut self, dst: Reg, value: i32) -> &mut Self {
        self.emit(0x07, dst, 0, 0, value)
    }

    /// `dst += src`
    pub(crate) fn add_register(&mut self, dst: Reg, src: Reg) -> &mut Self {
        self.emit(0x0f, dst, src.0, 0, 0)
    }

    /// `dst /= value`, unsigned
    pub(crate) fn divide(&mut self, dst: Reg, value: i32) -> &mut Self {
        self.emit(0x37, dst, 0, 0, value)
    }

    /// `dst %= value`, unsigned
    pub(crate) fn modulo(&mut self, dst: Reg, value: i32) -> &mut Self {
        self.emit(0x97, dst, 0, 0, value)
    }

    /// `dst <<= value`
    pub(crate) fn shift_left(&mut self, dst: Reg, value: i32) -> &mut Self {
        self.emit(0x67, dst, 0, 0, value)
    }

    /// The lower half of `dst` times `value`; the upper half becomes 0.
    pub(crate) fn multiply_word(&mut self, dst: Reg, value: i32) -> &mut Self {
        self.emit(0x24, dst, 0, 0, value)
    }

    /// The lower half of `dst` shifted right by `value`; the upper half becomes 0.
    pub(crate) fn shift_word_right(&mut self, dst: Reg, value: i32) -> &mut Self {
        self.emit(0x74, dst, 0, 0, value)
    }

    /// `dst -= src`
    pub(crate) fn subtract(&mut self, dst: Reg, src: Reg) -> &mut Self {
        self.emit(0x1f, dst, src.0, 0, 0)
    }

    /// `dst &= value`
    pub(crate) fn and(&mut self, dst: Reg, value: i32) -> &mut Self {
        self.emit(0x57, dst, 0, 0, value)
    }

    /// `dst = *(base + offset)`
    pub(crate) fn load(&mut self, width: Width, dst: Reg, base: Reg, offset: i16) -> &mut Self {
        self.emit(0x61 | width as u8, dst, base.0, offset, 0)
    }

    /// `*(base + offset) = value`
    pub(crate) fn store(&mut self, width: Width, base: Reg, offset: i16, value: i32) -> &mut Self {
        self.emit(0x62 | width as u8, base, 0, offset, value)
    }

    /// `*(base + offset) = src`
    pub(crate) fn store_register(
        &mut self,
        width: Width,
        base: Reg,
        offset: i16,
        src: Reg,
    ) -> &mut Self {
        self.emit(0x63 | width as u8, base, src.0, offset, 0)
    }

    /// `dst ^= value`, sign-extended
    pub(crate) fn exclusive_or(&mut self, dst: Reg, value: i32) -> &mut Self {
        self.emit(0xa7, dst, 0, 0, value)
    }

    /// Atomically `*(base + offset) += src`, 64 bits
    pub(crate) fn atomic_add(&mut self, base: Reg, offset: i16, src: Reg) -> &mut Self {
        self.emit(0xdb, base, src.0, offset, 0)
    }

    /// `dst = the map`, for a helper
    pub(crate) fn map(&mut self, dst: Reg, map: &Map) -> &mut Self {
        self.emit(0x18, dst, 1, 0, map.as_fd().as_raw_fd()).emit(0, Reg(0), 0, 0, 0)
    }

    /// `dst = address of the first value of an array map`
    pub(crate) fn map_value(&mut self, dst: Reg, map: &Map) -> &mut Self {
        self.emit(0x18, dst, 2, 0, map.as_fd().as_raw_fd()).emit(0, Reg(0), 0, 0, 0)
    }

    /// Calls a helper of the kernel: arguments in registers 1 to 5, which are lost, the result in
    /// register 0.
    pub(crate) fn call(&mut self, helper: i32) -> &mut Self {
        self.emit(0x85, Reg(0), 0, 0, helper)
    }

    /// Returns register 0.
    pub(crate) fn exit(&mut self) -> &mut Self {
        self.emit(0x95, Reg(0), 0, 0, 0)
    }

    /// A label to be placed later.
    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Places a label here.
    pub(crate) fn place(&mut self, label: Label) -> &mut Self {
        self.labels[label.0] = Some(self.code.len());
        self
    }

    /// `if dst <condition> value goto label`; the value is sign-extended.
    pub(crate) fn jump_if(&mut self, dst: Reg, condition: If, value: i32, to: Label) -> &mut Self {
        self.jumps.push((self.code.len(), to));
        self.emit(0x05 | condition as u8, dst, 0, 0, value)
    }

    /// `if dst <condition> src goto label`
    pub(crate) fn jump_if_register(
        &mut self,
        dst: Reg,
        condition: If,
        src: Reg,
        to: Label,
    ) -> &mut Self {
        self.jumps.push((self.code.len(), to));
        self.emit(0x0d | condition as u8, dst, src.0, 0, 0)
    }

    /// `goto label`
    pub(crate) fn jump(&mut self, to: Label) -> &mut Self {
        self.jumps.push((self.code.len(), to));
        self.emit(0x05, Reg(0), 0, 0, 0)
    }

    /// The instructions, with every jump resolved.
    pub(crate) fn finish(mut self) -> Vec<u64> {
        for (at, label) in self.jumps {
            let to = self.labels[label.0].expect("every label is placed");
            let offset = i16::try_from(to as isize - at as isize - 1).expect("a short program");
            let mut bytes = self.code[at].to_ne_bytes();
            bytes[2..4].copy_from_slice(&offset.to_ne_bytes());
            self.code[at] = u64::from_ne_bytes(bytes);
        }
        self.code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_what_the_kernel_documents() {
        let mut asm = Assembler::default();
        let end = asm.label();
        asm.load(Width::B4, Reg(2), Reg(1), 4)
            .jump_if(Reg(2), If::NotEqual, 0, end)
            .set(Reg(0), -1)
            .place(end)
            .exit();
        let code: Vec<_> = asm.finish().into_iter().map(u64::to_le_bytes).collect();
        if cfg!(target_endian = "little") {
            assert_eq!(
                code,
                [
                    [0x61, 0x12, 4, 0, 0, 0, 0, 0],
                    [0x55, 0x02, 1, 0, 0, 0, 0, 0],
                    [0xb7, 0x00, 0, 0, 0xff, 0xff, 0xff, 0xff],
                    [0x95, 0, 0, 0, 0, 0, 0, 0],
                ]
            );
        }
    }
}
