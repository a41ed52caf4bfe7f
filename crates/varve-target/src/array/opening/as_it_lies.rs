//! What is on the members of an array that is not in use: it is read alone, and nothing says which member is authoritative.

use super::super::{ArrayLayout, ArraySpec, combine};
use crate::Linear;
use futures_util::future::join_all;
use varve_block::{
    Access, Arena, BlockDevice, Buffer, Checked, Completion, Device, Extent, Io, IoError, Outcome, Shape,
    accept_unaligned,
};

/// Devices on which the bytes of an array are read from `members` as they lie there: of a mirror one for each copy that is here, of
/// ddraid one of all fragments, of which one may be computed. They cannot be written.
pub fn as_it_lies(spec: &ArraySpec, members: &[Option<Device>], arena: &Arena) -> Vec<Device> {
    assert_eq!(members.len(), spec.layout.members(), "ARRAY3: a place for each member");
    let length = spec.layout.on_members(Extent::new(0, spec.size)).length;
    let data = |device: &Device| Device::new(Linear::new(vec![(length, device.clone(), spec.metadata_size)]));
    let parts: Vec<Option<Device>> = members.iter().map(|member| member.as_ref().map(data)).collect();
    match spec.layout {
        ArrayLayout::Mirror { .. } => parts.into_iter().flatten().collect(),
        ArrayLayout::Ddraid { .. } => {
            let fragments = Fragments { spec: *spec, parts, arena: arena.clone() };
            vec![accept_unaligned(Device::new(fragments), arena.clone())]
        }
    }
}

/// The members of ddraid, behind their metadata.
struct Fragments {
    spec: ArraySpec,
    parts: Vec<Option<Device>>,
    arena: Arena,
}

impl Fragments {
    async fn read(&self, offset: u64, mut buffer: Buffer) -> Outcome {
        let layout = self.spec.layout;
        let index = |value: u64| usize::try_from(value).expect("a request is in memory");
        let run = layout.on_members(Extent::new(offset, buffer.len() as u64));
        let read = async |part: &Option<Device>| {
            let device = part.as_ref()?;
            device.read(run.offset, self.arena.take(index(run.length))).await.ok()
        };
        let mut runs = join_all(self.parts.iter().map(read)).await;
        let data_members = index(layout.data_members());
        if let Some(absent) = (0..data_members).find(|place| runs[*place].is_none()) {
            let others: Vec<&[u8]> = runs.iter().flatten().map(|run| &run[..]).collect();
            if others.len() < data_members {
                return Err(IoError::Medium);
            }
            runs[absent] = Some(combine::xor_all(&others, &self.arena));
        }
        for (member, run) in runs.iter().flatten().take(data_members).enumerate() {
            combine::scatter(run, member, data_members, index(layout.fragment_size()), &mut buffer);
        }
        Ok(buffer)
    }
}

impl BlockDevice for Fragments {
    fn shape(&self) -> Shape {
        let sectors = self.parts.iter().flatten().map(|part| u64::from(part.shape().block_size));
        let block = self.spec.layout.block_size().max(sectors.max().unwrap_or(1));
        let block = u32::try_from(block).expect("a block is small");
        Shape { access: Access::ReadOnly, ..Shape::new(self.spec.size, block) }
    }

    fn submit(&self, io: Checked) -> Completion<'_> {
        match io.into_io() {
            Io::Read { offset, buffer } => Completion::pending(self.read(offset, buffer)),
            Io::Flush => Completion::done(),
            Io::Write { .. } | Io::Zero { .. } | Io::Discard { .. } => Completion::failed(IoError::ReadOnly),
        }
    }
}
