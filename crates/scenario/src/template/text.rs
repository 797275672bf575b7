//! The tables of a scenario, written one by one.

use std::fmt::Write as _;

use evenkeel_core::settings::quantity::rate_text;
use evenkeel_core::{BitRate, Nanos};

/// One queue for all, as long as what stands behind most links.
pub(super) const FIFO: &str = "{ kind = \"fifo\", limit = 1000 }";

/// A line of a table, `key = "value"`.
pub(super) fn quoted(text: &mut String, key: &str, value: &str) {
    let _ = writeln!(text, "{key} = {}", toml::Value::from(value));
}

/// A scenario that is being written.
pub(super) struct Text(String);

/// TCP from one host to another.
pub(super) struct Flow<'a> {
    pub(super) name: &'a str,
    pub(super) from: &'a str,
    pub(super) to: &'a str,
    /// Connections.
    pub(super) flows: u32,
    /// Payload; without, until the end.
    pub(super) bytes: Option<u64>,
}

impl<'a> Flow<'a> {
    pub(super) fn between(name: &'a str, from: &'a str, to: &'a str) -> Self {
        Self { name, from, to, flows: 1, bytes: None }
    }
}

/// What is expected.
pub(super) struct Claim<'a> {
    pub(super) name: &'a str,
    pub(super) claim: &'a str,
    pub(super) that: String,
}

impl Text {
    pub(super) fn new(name: &str, title: &str, notes: &str) -> Self {
        let mut text = String::from(
            "# evenkeel scenario check FILE    says what is wrong with it\n\
             # evenkeel sim FILE --seeds 5     runs it in virtual time\n\
             # evenkeel lab FILE --repeat 3    runs it on real packets (root)\n\
             # evenkeel reference scenario     tells every key, metric and function\n\n",
        );
        quoted(&mut text, "name", name);
        quoted(&mut text, "title", title);
        quoted(&mut text, "notes", notes);
        text.push_str(
            "seed = 1\n\
             # Samples are of windows of this length; the start of each step is left out.\n\
             sample = \"500ms\"\nsettle = \"3s\"\nduration = \"15s\"\n",
        );
        Self(text)
    }

    pub(super) fn host(&mut self, name: &str) {
        self.0.push_str("\n[[host]]\n");
        quoted(&mut self.0, "name", name);
    }

    pub(super) fn router(&mut self, name: &str) {
        self.0.push_str("\n[[router]]\n");
        quoted(&mut self.0, "name", name);
    }

    /// A router that tells calls from the rest, by DSCP, to count them apart.
    pub(super) fn call_classes(&mut self, name: &str) {
        self.router(name);
        self.0.push_str(
            "[[router.config.class]]\nname = \"rest\"\n\
             [[router.config.class]]\nname = \"call\"\nmatch = [{ dscp = [46] }]\n",
        );
    }

    /// A link of the router that was named last. A rate alone gives each flow a short queue of its
    /// own; `discipline` has more keys of it.
    pub(super) fn link(&mut self, port: &str, rate: BitRate, discipline: &str) {
        self.0.push_str("[[router.config.link]]\n");
        quoted(&mut self.0, "port", port);
        quoted(&mut self.0, "rate", &rate_text(rate));
        self.0.push_str("ring = { slots = 2, refill = \"any\" }\n");
        self.0.push_str("[router.config.link.discipline]\nkind = \"pdrr\"\naqm = \"cobalt\"\n");
        self.0.push_str("max_delay = \"50ms\"\n");
        if !discipline.is_empty() {
            let _ = writeln!(self.0, "{discipline}");
        }
    }

    pub(super) fn wire(&mut self, a: &str, b: &str, delay: Option<Nanos>) {
        let _ = write!(self.0, "\n[[wire]]\nends = [\"{a}\", \"{b}\"]\n");
        if let Some(delay) = delay.filter(|delay| *delay > Nanos::ZERO) {
            quoted(&mut self.0, "delay", &delay.to_string());
        }
    }

    fn traffic(&mut self, name: &str, from: &str, to: &str) {
        self.0.push_str("\n[[traffic]]\n");
        quoted(&mut self.0, "name", name);
        quoted(&mut self.0, "from", from);
        quoted(&mut self.0, "to", to);
    }

    pub(super) fn tcp(&mut self, flow: &Flow<'_>) {
        self.traffic(flow.name, flow.from, flow.to);
        self.0.push_str("kind = \"tcp\"\ncongestion = \"cubic\"\nsize = \"1500B\"\n");
        if flow.flows > 1 {
            let _ = writeln!(self.0, "flows = {}", flow.flows);
        }
        if let Some(bytes) = flow.bytes {
            let _ = writeln!(self.0, "bytes = \"{bytes}B\"");
        }
    }

    /// 80 kbit/s of voice.
    pub(super) fn call(&mut self, from: &str, to: &str) {
        self.traffic("call", from, to);
        self.0.push_str("rate = \"80kbit/s\"\nsize = \"200B\"\ndscp = 46\nclass = \"call\"\n");
    }

    pub(super) fn claim(&mut self, claim: &Claim<'_>) {
        self.0.push_str("\n[[expect]]\n");
        quoted(&mut self.0, "name", claim.name);
        quoted(&mut self.0, "claim", claim.claim);
        quoted(&mut self.0, "that", &claim.that);
    }

    /// The same with another discipline on a link: what must fail then, or it proves nothing.
    pub(super) fn without(
        &mut self,
        name: &str,
        router: &str,
        link: &str,
        discipline: &str,
        fails: &[&str],
    ) {
        let links = [(router.to_owned(), link.to_owned())];
        self.without_all(name, &links, discipline, fails);
    }

    pub(super) fn without_all(
        &mut self,
        name: &str,
        links: &[(String, String)],
        discipline: &str,
        fails: &[&str],
    ) {
        self.0.push_str("\n# A claim that cannot fail says nothing: without this it must.\n");
        self.0.push_str("[[without]]\n");
        quoted(&mut self.0, "name", name);
        self.0.push_str("set = [\n");
        for (router, link) in links {
            let _ = writeln!(
                self.0,
                "  {{ router = \"{router}\", link = \"{link}\", knob = \"discipline\", value = \
                 {discipline} }},"
            );
        }
        let fails: Vec<_> = fails.iter().map(|name| format!("\"{name}\"")).collect();
        let _ = writeln!(self.0, "]\nfails = [{}]", fails.join(", "));
    }

    pub(super) fn done(self) -> String {
        self.0
    }
}
