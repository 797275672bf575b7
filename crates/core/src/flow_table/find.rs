//! Looking an entry up.

use super::{EntryId, Held, Table, index};

impl<K: Copy + Eq, V: Copy> Table<K, V> {
    /// The entry of `key`, whose hash is `hash`.
    #[must_use]
    #[inline]
    pub fn find(&self, hash: u64, key: &K) -> Option<EntryId> {
        if self.index.is_none() {
            return self.walk(hash, key);
        }
        // Where nearly all are that are there at all.
        let first = EntryId(self.first(hash) as u32);
        if self.is_of(first, key) { Some(first) } else { self.find_further(hash, key) }
    }

    /// The entry at the place with the number `guess`, which may be any, if its key `is` the one
    /// that is looked for.
    #[must_use]
    #[inline]
    pub fn guessed(&self, guess: u32, is: impl FnOnce(&K) -> bool) -> Option<EntryId> {
        match self.places.get(guess as usize).map(|place| &place.held) {
            Some(Held::Entry { key, .. }) if is(key) => Some(EntryId(guess)),
            _ => None,
        }
    }

    /// Whether there is an entry of `key` at this place.
    #[must_use]
    #[inline]
    pub fn is_of(&self, id: EntryId, key: &K) -> bool {
        let held = self.places.get(id.index()).map(|place| &place.held);
        matches!(held, Some(Held::Entry { key: held, .. }) if held == key)
    }

    /// The same, wherever it is.
    #[inline(never)]
    fn find_further(&self, hash: u64, key: &K) -> Option<EntryId> {
        if let Some(index) = &self.index {
            let bucket = self.bucket(hash) as u32;
            for at in index.candidates(bucket, index::tag(self.mixed(hash))) {
                if self.is_of(EntryId(at), key) {
                    return Some(EntryId(at));
                }
            }
            if index.is_complete(bucket) {
                return None;
            }
        }
        self.walk(hash, key)
    }

    /// The same by the chain.
    #[inline]
    fn walk(&self, hash: u64, key: &K) -> Option<EntryId> {
        let mut at = self.places[self.bucket(hash)].head;
        // `NIL` and `END | bucket` lie beyond all places.
        while let Some(place) = self.places.get(at as usize) {
            if let Held::Entry { key: held, .. } = &place.held
                && held == key
            {
                return Some(EntryId(at));
            }
            at = place.next;
        }
        None
    }
}
