//! A log in memory: the product's own lines (sealed, chained, read back), on a disk that is one vector of bytes.
//!
//! Here: appending a step whole, what a kill or a power cut leaves of it, reading it as an opening must. Elsewhere: the
//! real files (`session`), a virtual file system with faults (`disk`).

use std::collections::BTreeMap;

use minke_record::{Blob, Chain, Draft, Durability, Entry, Position, line};

/// What a dying process leaves of the bytes that were written and not yet synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// Signal 9: everything that was written is there.
    Kill,
    /// A power cut: everything that was not synced is gone.
    PowerLost,
    /// A power cut that kept half of the bytes that were not synced.
    PowerTorn,
}

impl Death {
    pub const ALL: [Death; 3] = [Death::Kill, Death::PowerLost, Death::PowerTorn];
}

/// The log of one session.
#[derive(Debug, Clone, Default)]
pub struct MemLog {
    bytes: Vec<u8>,
    /// Bytes that survive a power cut.
    synced: usize,
    chain: Chain,
    blobs: BTreeMap<String, Vec<u8>>,
    /// Every entry, as it was read back from the bytes.
    entries: Vec<Entry>,
    /// Entries are taken from what is written instead of being read back: for tellings whose writing was read back
    /// before. A death reads everything from its bytes.
    trusting: bool,
    /// Writes fail while this is set.
    full: Option<Full>,
}

/// How full the disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// The ballast is still there: one small step fits when it is given up.
    ButBallast,
    /// Nothing fits.
    Wholly,
}

/// A step that could not be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoSpace;

/// How many bytes of a step are written before a writer dies inside the write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tear {
    /// All of the first line, newline included, and nothing of the others.
    AfterFirstLine,
    /// All but the last newline.
    BeforeLastNewline,
    /// Half of the bytes.
    Half,
}

impl MemLog {
    /// Writes a step with one call and gives its entries as a reader would see them.
    pub fn append(&mut self, step: &[Draft], blobs: &[Blob]) -> Result<Vec<Entry>, NoSpace> {
        if self.full.is_some() {
            return Err(NoSpace);
        }
        Ok(self.write(step, blobs))
    }

    /// Keeps the recording of a stream.
    pub fn keep_recording(&mut self, recording: &Blob) {
        self.keep(std::slice::from_ref(recording));
    }

    /// The same after the ballast was given up.
    pub fn append_with_ballast(&mut self, step: &[Draft], blobs: &[Blob]) -> Result<Vec<Entry>, NoSpace> {
        match self.full {
            Some(Full::Wholly) => Err(NoSpace),
            Some(Full::ButBallast) | None => Ok(self.write(step, blobs)),
        }
    }

    pub fn set_full(&mut self, full: Option<Full>) {
        self.full = full;
    }

    pub fn is_full(&self) -> bool {
        self.full.is_some()
    }

    fn write(&mut self, step: &[Draft], blobs: &[Blob]) -> Vec<Entry> {
        self.keep(blobs);
        let (bytes, links) = self.seal(step, Torn::Not);
        let from = self.bytes.len();
        self.bytes.extend_from_slice(&bytes);
        self.chain = links.last().copied().unwrap_or(self.chain);
        let entries = if self.trusting { self.taken(step, &links) } else { self.lines(from) };
        self.entries.extend(entries.iter().cloned());
        entries
    }

    /// Dies inside the write of a step: some of its bytes are there.
    pub fn tear(&mut self, step: &[Draft], blobs: &[Blob], tear: Tear) {
        self.keep(blobs);
        let (bytes, _) = self.seal(step, Torn::Not);
        let first = bytes.iter().position(|b| *b == b'\n').map_or(0, |at| at + 1);
        let keep = match tear {
            Tear::AfterFirstLine => first,
            Tear::BeforeLastNewline => bytes.len().saturating_sub(1),
            Tear::Half => bytes.len() / 2,
        };
        self.bytes.extend_from_slice(&bytes[..keep]);
    }

    /// A broken writer, for the test of the harness: each line of the step looks like a step of its own, and the
    /// writer dies after the first.
    pub fn tear_unmarked(&mut self, step: &[Draft], blobs: &[Blob]) {
        self.keep(blobs);
        let (bytes, _) = self.seal(step, Torn::Unmarked);
        let first = bytes.iter().position(|b| *b == b'\n').map_or(0, |at| at + 1);
        self.bytes.extend_from_slice(&bytes[..first]);
    }

    fn keep(&mut self, blobs: &[Blob]) {
        for blob in blobs {
            self.blobs.insert(blob.name.blob.clone(), blob.content.clone());
        }
    }

    fn seal(&self, step: &[Draft], torn: Torn) -> (Vec<u8>, Vec<Chain>) {
        let mut bytes = Vec::new();
        let mut links = Vec::new();
        let mut link = self.chain;
        for (at, draft) in step.iter().enumerate() {
            let more = torn == Torn::Not && at + 1 < step.len();
            link = line::seal(link, draft, more, &mut bytes);
            links.push(link);
        }
        (bytes, links)
    }

    /// The entries of a step, without reading them back.
    fn taken(&self, step: &[Draft], links: &[Chain]) -> Vec<Entry> {
        let entry = |(at, (draft, h)): (usize, (&Draft, &Chain))| {
            let more = at + 1 < step.len();
            let Draft { seq, ts, run, kind, .. } = draft.clone();
            self.fetch(Entry { seq, ts, run, more, kind, h: *h })
                .expect("blobs are kept before the step that names them")
        };
        step.iter().zip(links).enumerate().map(entry).collect()
    }

    pub fn trust(&mut self) {
        self.trusting = true;
    }

    pub fn sync(&mut self) {
        self.synced = self.bytes.len();
    }

    /// Whether a power cut now would lose something.
    pub fn unsynced(&self) -> bool {
        self.synced < self.bytes.len()
    }

    /// The writer is gone; what is left of its bytes.
    pub fn die(&mut self, death: Death) {
        let lost = self.bytes.len() - self.synced;
        match death {
            Death::Kill => {}
            Death::PowerLost => self.bytes.truncate(self.synced),
            Death::PowerTorn => self.bytes.truncate(self.synced + lost / 2),
        }
    }

    /// Opens the log: cuts an unfinished step and gives every entry. An error is damage, which nothing here makes.
    pub fn open(&mut self) -> Result<&[Entry], String> {
        let mut prev = Chain::ZERO;
        let (mut good, mut at) = (0usize, 0usize);
        let mut entries: Vec<Entry> = Vec::new();
        let mut whole = 0usize;
        let mut end_chain = Chain::ZERO;
        while let Some(len) = self.bytes[at..].iter().position(|b| *b == b'\n') {
            let text = &self.bytes[at..at + len];
            prev = line::check(prev, text).map_err(|e| format!("line at byte {at}: {e}"))?;
            let text = std::str::from_utf8(text).map_err(|e| format!("line at byte {at}: {e}"))?;
            let entry = self.fetch(line::parse(text).map_err(|e| format!("line at byte {at}: {e}"))?)?;
            at += len + 1;
            if entry.seq != entries.len() as u64 {
                return Err(format!("entry {} stands where {} comes next", entry.seq, entries.len()));
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

    fn fetch(&self, mut entry: Entry) -> Result<Entry, String> {
        entry
            .kind
            .fetch_lists(&mut |name| {
                self.blobs.get(&name.blob).cloned().ok_or_else(|| format!("no blob {}", name.blob))
            })
            .map_err(|e| format!("entry {}: {e:?}", entry.seq))?;
        Ok(entry)
    }

    /// The entries that stand from byte `from` on; they were sealed a moment ago.
    fn lines(&self, from: usize) -> Vec<Entry> {
        self.bytes[from..]
            .split(|b| *b == b'\n')
            .filter(|text| !text.is_empty())
            .map(|text| {
                let text = std::str::from_utf8(text).expect("a sealed line is UTF-8");
                let entry = line::parse(text).expect("a sealed line reads back");
                self.fetch(entry).expect("blobs are kept before the step that names them")
            })
            .collect()
    }

    /// Every entry of every whole step, as a reader beside the writer sees them.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The last entry of the last step.
    pub fn head(&self) -> Option<Position> {
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
enum Torn {
    Not,
    Unmarked,
}

/// Whether a step has to be synced at once.
pub(crate) fn has_barrier(step: &[Draft]) -> bool {
    step.iter().any(|draft| draft.durability == Durability::Barrier)
}

#[cfg(test)]
mod tests {
    use super::*;
    use minke_record::{Alert, AlertLevel, AlertSource};

    fn step(seqs: std::ops::Range<u64>) -> Vec<Draft> {
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
        for tear in [Tear::AfterFirstLine, Tear::BeforeLastNewline, Tear::Half] {
            let mut log = MemLog::default();
            log.append(&step(0..2), &[]).unwrap();
            log.tear(&step(2..5), &[], tear);
            assert_eq!(log.open().unwrap().len(), 2, "{tear:?}");
            log.append(&step(2..3), &[]).unwrap();
            assert_eq!(log.open().unwrap().len(), 3);
        }
    }

    #[test]
    fn a_power_cut_costs_what_was_not_synced() {
        let mut log = MemLog::default();
        log.append(&step(0..2), &[]).unwrap();
        log.sync();
        log.append(&step(2..4), &[]).unwrap();
        let mut lost = log.clone();
        lost.die(Death::PowerLost);
        assert_eq!(lost.open().unwrap().len(), 2);
        log.die(Death::Kill);
        assert_eq!(log.open().unwrap().len(), 4);
    }
}
