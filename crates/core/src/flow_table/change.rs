//! Putting entries in and taking them out.

use super::{END, EntryId, Full, Held, NIL, Slot, Table, gone, index};

impl<K: Copy + Eq, V: Copy> Table<K, V> {
    /// Puts in a `key` that is not in the table.
    ///
    /// # Errors
    /// [`Full`] if there is no room.
    #[inline(always)] // or key and value are copied once more
    pub fn insert(&mut self, hash: u64, key: K, value: V) -> Result<EntryId, Full> {
        debug_assert!(self.find(hash, &key).is_none(), "the key is in the table");
        let bucket = self.bucket(hash) as u32;
        let own = matches!(self.places[bucket as usize].held, Held::Nothing { .. });
        let at = if own { bucket } else { self.free };
        let Some(place) = self.places.get_mut(at as usize) else { return Err(Full) };
        let Held::Nothing { before } = place.held else { return Err(Full) };
        let after = place.next;
        place.held = Held::Entry { key, value };
        match self.places.get_mut(before as usize) {
            Some(before) => before.next = after,
            None => self.free = after,
        }
        if let Some(Slot { held: Held::Nothing { before: link }, .. }) =
            self.places.get_mut(after as usize)
        {
            *link = before;
        }
        self.chain(bucket, hash, at);
        self.len += 1;
        Ok(EntryId(at))
    }

    /// Takes an entry out.
    ///
    /// # Panics
    /// If there is no such entry.
    pub fn remove(&mut self, id: EntryId) -> V {
        let Held::Entry { value, .. } = self.places[id.index()].held else { gone(id) };
        self.unchain(id);
        if let Some(Slot { held: Held::Nothing { before }, .. }) =
            self.places.get_mut(self.free as usize)
        {
            *before = id.0;
        }
        let place = &mut self.places[id.index()];
        (place.held, place.next) = (Held::Nothing { before: NIL }, self.free);
        self.free = id.0;
        self.len -= 1;
        value
    }

    /// Puts a `key` that is not in the table into the place of an entry, which goes: what
    /// [`remove`](Self::remove) and [`insert`](Self::insert) come to in a full table, without a
    /// free place in between.
    ///
    /// # Panics
    /// If there is no such entry.
    pub fn replace(&mut self, id: EntryId, hash: u64, key: K, value: V) -> V {
        debug_assert!(self.find(hash, &key).is_none(), "the key is in the table");
        let held = &mut self.places[id.index()].held;
        let Held::Entry { value, .. } = core::mem::replace(held, Held::Entry { key, value }) else {
            gone(id)
        };
        self.unchain(id);
        self.chain(self.bucket(hash) as u32, hash, id.0);
        value
    }

    /// The entry in a place becomes the first of its bucket, which is that of `hash`.
    #[inline(always)] // or the table is read once more
    fn chain(&mut self, bucket: u32, hash: u64, at: u32) {
        let head = core::mem::replace(&mut self.places[bucket as usize].head, at);
        self.places[at as usize].next = if head == NIL { END | bucket } else { head };
        let tag = index::tag(self.mixed(hash));
        if let Some(index) = &mut self.index {
            index.insert(bucket, tag, at);
        }
    }

    /// An entry leaves its bucket.
    #[inline(always)] // or the table is read once more
    fn unchain(&mut self, id: EntryId) {
        let next = self.places[id.index()].next;
        let mut end = next;
        while end & END == 0 {
            end = self.places[end as usize].next;
        }
        let bucket = end & !END;
        if let Some(index) = &mut self.index {
            index.remove(bucket, id.0);
        }
        let head = &mut self.places[bucket as usize].head;
        if *head == id.0 {
            *head = if next & END == 0 { next } else { NIL };
            return;
        }
        let mut before = *head;
        while self.places[before as usize].next != id.0 {
            before = self.places[before as usize].next;
        }
        self.places[before as usize].next = next;
    }
}
