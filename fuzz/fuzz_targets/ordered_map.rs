//! Nodes and space pages of the ordered map, damaged and made to look whole.
#![no_main]

use libfuzzer_sys::fuzz_target;
use varve_format::pdata::{Block, node, space_page};
use varve_fuzz::{block, field, seal_whole};

fuzz_target!(|data: &[u8]| {
    let [kind, data @ ..] = data else { return };
    if kind % 2 == 0 {
        let mut block = block(&node::LAYOUT, data);
        let address = Block::new(field(&node::LAYOUT, "address").u64(&block));
        let _ = node::Node::decode(&block, address);
        seal_whole(&node::LAYOUT, &mut block);
        if let Ok(node) = node::Node::decode(&block, address) {
            assert_eq!(node.check(), Ok(()));
            let mut again = vec![0; block.len()];
            node.encode(&mut again);
            assert_eq!(node::Node::decode(&again, address), Ok(node), "what is written can be read");
        }
    } else {
        let mut block = block(&space_page::LAYOUT, data);
        let address = Block::new(field(&space_page::LAYOUT, "address").u64(&block));
        seal_whole(&space_page::LAYOUT, &mut block);
        if let Ok(page) = space_page::SpacePage::decode(&block, address) {
            let mut again = vec![0; block.len()];
            page.encode(&mut again, address);
            assert!(again == block, "one page has one form");
        }
    }
});
