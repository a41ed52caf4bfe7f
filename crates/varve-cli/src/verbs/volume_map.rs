//! `varve lv map`: where the bytes of a volume lie, as a table.

use super::or_dash;
use crate::answer::Answer;
use crate::grammar::VolumeMapOptions;
use crate::session::Session;
use crate::table::Table;
use varve_api::{ByteRange, Failure, MapExtent, MapKind, calls};

/// Asks for all extents, a page after the other.
pub(super) async fn map(session: &Session, options: &VolumeMapOptions) -> Result<Answer, Failure> {
    let VolumeMapOptions { name, offset, length } = options;
    let ask = async |offset: String, length: Option<String>| {
        let range = ByteRange { offset: Some(offset), length };
        session.ask(&calls::MapVolume(name.clone(), range)).await
    };
    let mut whole = ask(offset.clone(), length.clone()).await?;
    while whole.end < whole.until {
        let left = whole.until - whole.end;
        let next = ask(whole.end.to_string(), Some(left.to_string())).await?;
        if next.end <= whole.end {
            break;
        }
        whole.end = next.end;
        next.extents.into_iter().for_each(|extent| add(&mut whole.extents, extent));
    }
    let text = table(&whole.extents);
    Ok(Answer::new(&whole, text))
}

/// Adds an extent behind the others, as a part of the last one if it goes on there.
fn add(extents: &mut Vec<MapExtent>, extent: MapExtent) {
    match extents.last_mut() {
        Some(last) if continues(last, &extent) => last.length += extent.length,
        _ => extents.push(extent),
    }
}

fn continues(last: &MapExtent, next: &MapExtent) -> bool {
    let follows = match (last.disk_offset, next.disk_offset) {
        (Some(one), Some(two)) => one + last.length == two,
        (None, None) => true,
        _ => false,
    };
    follows
        && last.offset + last.length == next.offset
        && (last.kind, &last.disk, last.shared) == (next.kind, &next.disk, next.shared)
}

fn table(extents: &[MapExtent]) -> String {
    let mut table = Table::new(&["OFFSET>", "LENGTH>", "LIES ON", "AT>", "SHARED"]);
    for extent in extents {
        let lies_on = match (&extent.disk, extent.kind) {
            (Some(disk), _) => disk.clone(),
            (None, MapKind::Zeros) => "zeros".to_owned(),
            (None, MapKind::Disk | MapKind::Layout) => "its layout".to_owned(),
        };
        let at = extent.disk_offset.map(|offset| format!("{offset:#x}")).unwrap_or_default();
        let shared = if extent.shared == Some(true) { "shared" } else { "" };
        table.row(vec![
            format!("{:#x}", extent.offset),
            format!("{:#x}", extent.length),
            lies_on,
            or_dash(&at),
            or_dash(shared),
        ]);
    }
    table.render("it has no bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(offset: u64, length: u64, at: Option<u64>) -> MapExtent {
        let kind = if at.is_some() { MapKind::Disk } else { MapKind::Zeros };
        let disk = at.map(|_| "/dev/sda".to_owned());
        MapExtent { offset, length, kind, disk, disk_offset: at, shared: at.map(|_| offset == 0) }
    }

    #[test]
    fn extents_that_go_on_are_one_row() {
        let mut extents = Vec::new();
        for next in [
            extent(0, 4096, Some(1 << 20)),
            extent(4096, 4096, Some((1 << 20) + 4096)),
            extent(8192, 4096, Some((1 << 20) + 8192)),
            extent(12_288, 8192, None),
            extent(20_480, 4096, None),
        ] {
            add(&mut extents, next);
        }
        let expected = "OFFSET  LENGTH  LIES ON         AT  SHARED\n\
                        \x20  0x0  0x1000  /dev/sda  0x100000  shared\n\
                        0x1000  0x2000  /dev/sda  0x101000  -\n\
                        0x3000  0x3000  zeros            -  -\n";
        assert_eq!(table(&extents), expected);
    }
}
