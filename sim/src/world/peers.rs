//! Actions of clients of all kinds, and events that happen to them.

use super::{APPENDS_MAX, CLIENTS_MAX, ENGINES_MAX, Focus, HOSTILE, HOSTILES_MAX, TABLES, TENANTS, World};
use crate::checks::Checked;
use crate::client::Client;
use crate::engine::{Engine, Engines, Errand};
use crate::hostile::Hostile;
use crate::random::Random;
use farpool_wire::socket::{Pipe, pipe};
use std::sync::Arc;
use std::time::Duration;

impl World {
    /// Creates a connection: returns the client's end, and passes the other end to the node.
    pub(super) fn connect(&mut self, who: &str) -> Checked<Pipe> {
        let bytes_max = self.pipe_bytes + self.random.magnitude(256 << 10);
        let (ours, theirs) = pipe(bytes_max);
        self.peers_seen += 1;
        let event = format!("{who} {} connects through {bytes_max} bytes", self.peers_seen);
        self.shared.lock().log.event(event);
        self.sockets.send(Arc::new(theirs)).map_err(|_| "the server has ended".to_string())?;
        Ok(ours)
    }

    pub(super) fn connect_client(&mut self) -> Checked {
        if self.clients.len() < CLIENTS_MAX {
            let tenant = self.some_tenant();
            let socket = self.connect(&format!("client of {}", TENANTS[tenant]))?;
            self.clients.push(Client::new(self.peers_seen, tenant, TENANTS[tenant].to_string(), socket)?);
        }
        Ok(())
    }

    pub(super) fn connect_hostile(&mut self) -> Checked {
        if self.hostiles.len() < HOSTILES_MAX {
            let socket = self.connect("hostile client")?;
            self.hostiles.push(Hostile::new(self.peers_seen, HOSTILE, socket, &mut self.random));
        }
        Ok(())
    }

    /// Connects an engine, or disconnects one if there are enough.
    pub(super) fn connect_engine(&mut self) -> Checked {
        if self.engines.len() >= ENGINES_MAX {
            let engine = self.engines.swap_remove(self.random.below(ENGINES_MAX));
            self.shared.lock().log.event(format!("engine {} leaves", engine.number));
            return Ok(());
        }
        self.peers_seen += 1;
        let (number, tenant, form) = (self.peers_seen, self.some_tenant(), self.random.below(5));
        self.shared.lock().log.event(format!("engine {number} of {} connects", TENANTS[tenant]));
        let (network, sockets, shared) = (self.network.clone(), self.sockets.clone(), self.shared.clone());
        let appends_max = if self.focus == Focus::Appends { APPENDS_MAX } else { 12 };
        let engines = Engines { network, sockets, shared, appends_max };
        let connecting = async move { engines.connect(number, tenant, TENANTS[tenant], form).await };
        self.errands.push((format!("engine {number} connects"), tokio::spawn(connecting)));
        Ok(())
    }

    pub(super) fn ask(&mut self) -> Checked {
        let (table, queries) = (self.some_table(), self.queries);
        self.some_client(|client, random, step| {
            let told = client.ask(random, table, queries, step)?;
            Ok(Some(format!("client {} asks for {told}", client.number)))
        })
    }

    pub(super) fn write(&mut self) -> Checked {
        let Some(index) = self.some_index() else { return Ok(()) };
        let most = self.random.magnitude(64 << 10);
        self.clients[index].write(most, &self.shared.lock()).map(drop)
    }

    pub(super) fn read(&mut self) -> Checked {
        let Some(index) = self.some_index() else { return Ok(()) };
        let most = 1 + self.random.magnitude(1 << 20);
        self.clients[index].read(most, &mut self.shared.lock()).map(drop)
    }

    /// Drops a client without closing its connection properly, possibly in the middle of a message.
    pub(super) fn vanish(&mut self) -> Checked {
        if let Some(index) = self.some_index() {
            let client = self.clients.swap_remove(index);
            self.shared.lock().log.event(format!("client {} vanishes", client.number));
            self.programs += client.programs;
        }
        Ok(())
    }

    pub(super) fn send_on_errand(&mut self) -> Checked {
        if self.engines.is_empty() || self.errands.len() >= self.errands_max {
            return Ok(());
        }
        let engine = self.engines[self.random.below(self.engines.len())].clone();
        let (table, queries) = (self.some_table(), self.queries);
        let errand = match self.focus {
            Focus::Appends => Errand::random_append(&mut self.random, table),
            Focus::Everything => Errand::random(&mut self.random, table, queries),
            Focus::Scans => Errand::random_scan(&mut self.random, table, queries),
        };
        self.send_on(engine, errand);
        Ok(())
    }

    /// Starts an errand (a request) of an engine.
    pub(super) fn send_on(&mut self, engine: Arc<Engine>, errand: Errand) {
        let told = format!("engine {} is to do {errand:?}", engine.number);
        self.shared.lock().log.event(told.clone());
        let (random, loads) = (Random::new(self.random.next()), self.loads);
        let doing = async move { engine.run(errand, random, loads).await.map(|()| None) };
        self.errands.push((told, tokio::spawn(doing)));
    }

    /// Aborts a random errand (a request of an engine) at its current await point.
    pub(super) fn give_up_errand(&mut self) -> Checked {
        if !self.errands.is_empty() {
            let (told, errand) = self.errands.swap_remove(self.random.below(self.errands.len()));
            errand.abort();
            self.shared.lock().log.event(format!("given up: {told}"));
        }
        Ok(())
    }

    pub(super) fn pass_bytes(&mut self) -> Checked {
        let times_max = if self.focus == Focus::Scans { 16 } else { 4 };
        let (times, most) = (1 + self.random.below(times_max), 1 + self.random.magnitude(1 << 20));
        let mut state = self.shared.lock();
        (0..times).for_each(|_| self.network.pass_some(&mut self.random, most, &mut state.log));
        Ok(())
    }

    /// Breaks a random connection of an engine.
    pub(super) fn break_off(&mut self) -> Checked {
        let mut state = self.shared.lock();
        let step = state.log.step;
        if self.network.cut_some(&mut self.random, step) {
            state.log.event("a connection of an engine breaks".into());
        }
        Ok(())
    }

    pub(super) fn misbehave(&mut self) -> Checked {
        if self.hostiles.is_empty() {
            return Ok(());
        }
        let index = self.random.below(self.hostiles.len());
        let table = self.some_table();
        let most = self.random.magnitude(1 << 20);
        let hostile = &mut self.hostiles[index];
        match self.random.below(10) {
            0..5 => hostile.act(&mut self.random, table),
            5..7 => drop(hostile.write(most)),
            7..9 => drop(hostile.read(most + 1)),
            _ if self.random.chance(30) => {
                let number = self.hostiles.swap_remove(index).number;
                self.shared.lock().log.event(format!("hostile client {number} vanishes"));
            }
            _ => {}
        }
        self.hostiles.retain(|hostile| !hostile.is_gone);
        Ok(())
    }

    /// Lets time pass in which no participant works; if timeouts are allowed in this world, enough for timers to
    /// expire.
    pub(super) async fn pass_time(&mut self) -> Checked {
        self.clock.jump(1 << self.random.below(40));
        if self.shared.lock().weather.is_slow {
            for _ in 0..1 + self.random.magnitude(32) {
                tokio::time::advance(Duration::from_millis(1 + self.random.magnitude(20_000) as u64)).await;
            }
        }
        Ok(())
    }

    /// Returns a random table; mostly the large one, if there is one.
    fn some_table(&mut self) -> String {
        let is_large = self.focus == Focus::Scans && self.random.chance(85);
        (if is_large { TABLES[0] } else { self.random.pick(&TABLES) }).to_string()
    }

    /// Returns the index of a random tenant; mostly of the one with the large table, if there is one.
    fn some_tenant(&mut self) -> usize {
        let is_large = self.focus == Focus::Scans && self.random.chance(85);
        if is_large { 0 } else { self.random.below(TENANTS.len()) }
    }

    pub(super) fn some_client(
        &mut self,
        act: impl FnOnce(&mut Client, &mut Random, u64) -> Checked<Option<String>>,
    ) -> Checked {
        let Some(index) = self.some_index() else { return Ok(()) };
        let mut state = self.shared.lock();
        if let Some(told) = act(&mut self.clients[index], &mut self.random, state.log.step)? {
            state.log.event(told);
        }
        Ok(())
    }

    pub(super) fn some_index(&mut self) -> Option<usize> {
        (!self.clients.is_empty()).then(|| self.random.below(self.clients.len()))
    }
}
