//! An image on its way: a file in the workspace, a result in the log, a blob, and what the model is sent, in every format.

use serde_json::Value;

use crate::wired::{MODELS, Wired};

const LOOK: &str = r#"
[[turn]]
[[turn.call]]
tool = "Read"
args = { file_path = "{{cwd}}/dot.png" }
[[turn]]
text = "A dot."
[[turn]]
expect = "again"
text = "Still a dot."
"#;

/// The smallest PNG.
pub(crate) const PNG: &[u8] = &[
    0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0x0d, b'I', b'H', b'D', b'R', 0, 0, 0, 1, 0, 0,
    0, 1, 8, 0, 0, 0, 0, 0x3a, 0x7e, 0x9b, 0x55, 0, 0, 0, 0x0a, b'I', b'D', b'A', b'T', 0x78, 0x9c, 0x63, 0,
    1, 0, 0, 5, 0, 1, 0x0d, 0x0a, 0x2d, 0xb4, 0, 0, 0, 0, b'I', b'E', b'N', b'D', 0xae, 0x42, 0x60, 0x82,
];

#[test]
fn what_read_shows_reaches_the_model_and_stays_with_the_session() {
    for model in MODELS {
        let wired = Wired::new(LOOK);
        std::fs::write(wired.world.work().join("dot.png"), PNG).unwrap();
        let done = wired.exec(model, &["what is it?"]);
        assert_eq!((done.code, done.out.as_str()), (Some(0), "A dot.\n"), "{model}: {done:?}");
        // The file is gone; the session has what was seen.
        std::fs::remove_file(wired.world.work().join("dot.png")).unwrap();
        let done = wired.exec(model, &["--last", "again"]);
        assert_eq!(done.code, Some(0), "{model}: {done:?}");
        let images: Vec<u64> =
            wired.requests().iter().filter_map(|request| request["images"].as_u64()).collect();
        assert_eq!(images, [0, 1, 1], "{model}");
        let log = wired.log();
        let shown: Vec<&Value> =
            log.iter().filter(|entry| entry["item"]["images"][0]["media_type"] == "image/png").collect();
        let [shown] = shown.as_slice() else { panic!("{model}: one result shows it: {shown:?}") };
        let summary = shown["item"]["summary"].as_str().unwrap();
        assert!(summary.contains("PNG image, 1 × 1 pixels"), "{model}: {summary}");
        wired.world.verify();
    }
}
