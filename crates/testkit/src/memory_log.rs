//! A log in memory: the product's lines (sealed, chained, read back) on a disk that is one vector of bytes.
//!
//! Elsewhere: the real files (`session`), a virtual file system with faults (`disk`).

use std::collections::BTreeMap;

use minke_record::{Blob, ChainHash, Draft, Durability, Entry, Position, line};

/// What a crash leaves of written and unsynced bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeathKind {
    /// SIGKILL: all written bytes stay.
    Kill,
    /// A power cut: unsynced bytes are lost.
    PowerLost,
    /// A power cut that keeps half of the unsynced bytes.
    PowerTorn,
}

impl DeathKind {
    pub const ALL: [DeathKind; 3] = [DeathKind::Kill, DeathKind::PowerLost, DeathKind::PowerTorn];
}

/// The log of one session.
#[derive(Debug, Clone, Default)]
pub struct MemoryLog {
    bytes: Vec<u8>,
    /// Bytes that survive a power cut.
    synced: usize,
    chain: ChainHash,
    blobs: BTreeMap<String, Vec<u8>>,
    /// Every entry, as read back from the bytes.
    entries: Vec<Entry>,
    /// Takes entries from the writer instead of reading them back, for runs whose writes were read back
    /// before. After a crash everything is read from the bytes.
    skips_reread: bool,
    /// Writes fail while this is set.
    full_disk: Option<FullDisk>,
}

/// How full the disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FullDisk {
    /// The ballast remains: one small step fits when it is released.
    ExceptBallast,
    /// There is no space at all.
    Completely,
}

/// A step that could not be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskFull;

/// How many bytes of a step are written before the writer dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TearPoint {
    /// The first line with its newline and no other line.
    AfterFirstLine,
    /// All but the last newline.
    BeforeLastNewline,
    /// Half of the bytes.
    Half,
}

impl MemoryLog {
    /// Appends a step with one write and returns its entries as a reader would see them.
    pub fn append_step(&mut self, step: &[Draft], blobs: &[Blob]) -> Result<Vec<Entry>, DiskFull> {
        if self.full_disk.is_some() {
            return Err(DiskFull);
        }
        Ok(self.write_step(step, blobs))
    }

    /// Stores the recording of a stream.
    pub fn keep_recording(&mut self, recording: &Blob) {
        self.store_blobs(std::slice::from_ref(recording));
    }

    /// Appends a step after the ballast was released.
    pub fn append_with_ballast(&mut self, step: &[Draft], blobs: &[Blob]) -> Result<Vec<Entry>, DiskFull> {
        match self.full_disk {
            Some(FullDisk::Completely) => Err(DiskFull),
            Some(FullDisk::ExceptBallast) | None => Ok(self.write_step(step, blobs)),
        }
    }

    pub fn set_full(&mut self, full: Option<FullDisk>) {
        self.full_disk = full;
    }

    pub fn is_full(&self) -> bool {
        self.full_disk.is_some()
    }

    fn write_step(&mut self, step: &[Draft], blobs: &[Blob]) -> Vec<Entry> {
        self.store_blobs(blobs);
        let (bytes, links) = self.seal_step(step, TearMarking::Not);
        let from = self.bytes.len();
        self.bytes.extend_from_slice(&bytes);
        self.chain = links.last().copied().unwrap_or(self.chain);
        let entries =
            if self.skips_reread { self.entries_of_step(step, &links) } else { self.read_back(from) };
        self.entries.extend(entries.iter().cloned());
        entries
    }

    /// Writes a part of a step, as a dying writer does.
    pub fn tear_step(&mut self, step: &[Draft], blobs: &[Blob], tear: TearPoint) {
        self.store_blobs(blobs);
        let (bytes, _) = self.seal_step(step, TearMarking::Not);
        let first = bytes.iter().position(|b| *b == b'\n').map_or(0, |at| at + 1);
        let keep = match tear {
            TearPoint::AfterFirstLine => first,
            TearPoint::BeforeLastNewline => bytes.len().saturating_sub(1),
            TearPoint::Half => bytes.len() / 2,
        };
        self.bytes.extend_from_slice(&bytes[..keep]);
    }

    /// Writes the first line of a step without marking it as incomplete, as a broken writer would. For the
    /// tests of the harness.
    pub fn tear_unmarked(&mut self, step: &[Draft], blobs: &[Blob]) {
        self.store_blobs(blobs);
        let (bytes, _) = self.seal_step(step, TearMarking::Unmarked);
        let first = bytes.iter().position(|b| *b == b'\n').map_or(0, |at| at + 1);
        self.bytes.extend_from_slice(&bytes[..first]);
    }

    fn store_blobs(&mut self, blobs: &[Blob]) {
        for blob in blobs {
            self.blobs.insert(blob.name.blob.clone(), blob.content.clone());
        }
    }

    fn seal_step(&self, step: &[Draft], torn: TearMarking) -> (Vec<u8>, Vec<ChainHash>) {
        let mut bytes = Vec::new();
        let mut links = Vec::new();
        let mut link = self.chain;
        for (at, draft) in step.iter().enumerate() {
            let more = torn == TearMarking::Not && at + 1 < step.len();
            link = line::seal_entry(link, draft, more, &mut bytes);
            links.push(link);
        }
        (bytes, links)
    }

    /// Returns the entries of a step without reading them back.
    fn entries_of_step(&self, step: &[Draft], links: &[ChainHash]) -> Vec<Entry> {
        let entry = |(at, (draft, h)): (usize, (&Draft, &ChainHash))| {
            let more = at + 1 < step.len();
            let Draft { seq, ts, run, kind, .. } = draft.clone();
            self.fetch_lists(Entry { seq, ts, run, more, kind, h: *h })
                .expect("blobs are stored before the step that names them")
        };
        step.iter().zip(links).enumerate().map(entry).collect()
    }

    pub fn skip_reread(&mut self) {
        self.skips_reread = true;
    }

    pub fn sync_bytes(&mut self) {
        self.synced = self.bytes.len();
    }

    /// Returns whether a power cut now would lose data.
    pub fn has_unsynced(&self) -> bool {
        self.synced < self.bytes.len()
    }

    /// Applies a crash to the bytes.
    pub fn apply_death(&mut self, death: DeathKind) {
        let lost = self.bytes.len() - self.synced;
        match death {
            DeathKind::Kill => {}
            DeathKind::PowerLost => self.bytes.truncate(self.synced),
            DeathKind::PowerTorn => self.bytes.truncate(self.synced + lost / 2),
        }
    }

    /// Opens the log: cuts an incomplete step and returns all entries. An error means damage, which never
    /// occurs here.
    pub fn open_log(&mut self) -> Result<&[Entry], String> {
        let mut prev = ChainHash::ZERO;
        let (mut good, mut at) = (0usize, 0usize);
        let mut entries: Vec<Entry> = Vec::new();
        let mut whole = 0usize;
        let mut end_chain = ChainHash::ZERO;
        while let Some(len) = self.bytes[at..].iter().position(|b| *b == b'\n') {
            let text = &self.bytes[at..at + len];
            prev = line::check_link(prev, text).map_err(|e| format!("line at byte {at}: {e}"))?;
            let text = std::str::from_utf8(text).map_err(|e| format!("line at byte {at}: {e}"))?;
            let entry =
                self.fetch_lists(line::parse_entry(text).map_err(|e| format!("line at byte {at}: {e}"))?)?;
            at += len + 1;
            if entry.seq != entries.len() as u64 {
                return Err(format!("entry {} is at the position of {}", entry.seq, entries.len()));
            }
            let last = !entry.more;
            entries.push(entry);
            if last {
                (good, whole, end_chain) = (at, entries.len(), prev);
            }
        }
        entries.truncate(whole);
        self.bytes.truncate(good);
        self.synced = good;
        self.chain = end_chain;
        self.entries = entries;
        Ok(&self.entries)
    }

    fn fetch_lists(&self, mut entry: Entry) -> Result<Entry, String> {
        entry
            .kind
            .fetch_lists(&mut |name| {
                self.blobs.get(&name.blob).cloned().ok_or_else(|| format!("no blob {}", name.blob))
            })
            .map_err(|e| format!("entry {}: {e:?}", entry.seq))?;
        Ok(entry)
    }

    /// Returns the entries from byte `from` on; they were just sealed.
    fn read_back(&self, from: usize) -> Vec<Entry> {
        self.bytes[from..]
            .split(|b| *b == b'\n')
            .filter(|text| !text.is_empty())
            .map(|text| {
                let text = std::str::from_utf8(text).expect("a sealed line is UTF-8");
                let entry = line::parse_entry(text).expect("a sealed line reads back");
                self.fetch_lists(entry).expect("blobs are stored before the step that names them")
            })
            .collect()
    }

    /// Returns the entries of all complete steps, as another reader sees them.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the last entry of the last step.
    pub fn head_position(&self) -> Option<Position> {
        self.entries.last().map(|entry| Position { seq: entry.seq, h: entry.h })
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn blob(&self, name: &str) -> Option<&[u8]> {
        self.blobs.get(name).map(Vec::as_slice)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TearMarking {
    Not,
    Unmarked,
}

/// Returns whether a step must be synced immediately.
pub(crate) fn has_barrier(step: &[Draft]) -> bool {
    step.iter().any(|draft| draft.durability == Durability::Barrier)
}

#[cfg(test)]
mod tests {
    use super::*;
    use minke_record::{Alert, AlertLevel, AlertSource};

    fn alert_drafts(seqs: std::ops::Range<u64>) -> Vec<Draft> {
        let alert = Alert { level: AlertLevel::Warn, source: AlertSource::Pod, message: "m".into() };
        seqs.map(|seq| Draft {
            seq,
            ts: seq,
            run: None,
            kind: alert.clone().into(),
            durability: Durability::Lazy,
        })
        .collect()
    }

    #[test]
    fn a_torn_step_never_happened() {
        for tear in [TearPoint::AfterFirstLine, TearPoint::BeforeLastNewline, TearPoint::Half] {
            let mut log = MemoryLog::default();
            log.append_step(&alert_drafts(0..2), &[]).unwrap();
            log.tear_step(&alert_drafts(2..5), &[], tear);
            assert_eq!(log.open_log().unwrap().len(), 2, "{tear:?}");
            log.append_step(&alert_drafts(2..3), &[]).unwrap();
            assert_eq!(log.open_log().unwrap().len(), 3);
        }
    }

    #[test]
    fn a_power_cut_costs_what_was_not_synced() {
        let mut log = MemoryLog::default();
        log.append_step(&alert_drafts(0..2), &[]).unwrap();
        log.sync_bytes();
        log.append_step(&alert_drafts(2..4), &[]).unwrap();
        let mut lost = log.clone();
        lost.apply_death(DeathKind::PowerLost);
        assert_eq!(lost.open_log().unwrap().len(), 2);
        log.apply_death(DeathKind::Kill);
        assert_eq!(log.open_log().unwrap().len(), 4);
    }
}
