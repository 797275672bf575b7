//! `evenkeel init`: a first router.toml, from four answers.

use std::fmt::Write as _;
use std::io::{self, BufRead, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use evenkeel_config::RouterConfig;
use evenkeel_core::BitRate;
use evenkeel_core::settings::quantity::rate_text;
use evenkeel_settings::read::suggest;

use crate::args::{InitArgs, Place};
use crate::argument::rate;
use crate::check::{self, absolute, has_key};
use crate::ctl::save;
use crate::failure::{Failure, Outcome};
use crate::out::print;
use crate::shape::{overhead_toml, quoted};
use crate::since;

/// What the service runs, where the package is installed.
pub(crate) const OF_THE_SERVICE: &str = "/etc/evenkeel/router.toml";

/// Percent of the line's rate: what waits must wait here, not in the modem.
const PART: u64 = 95;

/// Short queues, as a link with nothing but a rate has them, shared by hosts first.
const BY_HOST: &str = "max_delay = \"50ms\"\nbuffer = 16384\naqm = \"cobalt\"";

/// The four answers.
#[derive(Debug, PartialEq)]
struct Answers {
    place: Place,
    wan: String,
    /// The other side, where there are two ports.
    lan: Option<String>,
    down: BitRate,
    up: BitRate,
}

pub(crate) fn init(args: &InitArgs) -> Outcome {
    let file = args.file.clone().unwrap_or_else(usual_file);
    let file = absolute(&file);
    // Before the questions: nobody answers for nothing.
    must_be_new(&file, args.force)?;
    if let Some(old) = &args.from {
        return from_old(old, &file);
    }
    let stdin = io::stdin();
    let answers = if stdin.is_terminal() {
        asked(args, &mut stdin.lock(), &mut io::stderr())?
    } else {
        asked(args, &mut io::empty(), &mut io::sink())?
    };
    let text = router_toml(&answers, args);
    RouterConfig::parse(&text, "evenkeel init")?;
    let kept = save::write(&file, &text, false)?;
    print(&next(&file, kept.as_deref(), &answers))
}

/// Refuses to write over a file, unless `force` is given.
pub(crate) fn must_be_new(file: &Path, force: bool) -> Result<(), Failure> {
    if force || file.symlink_metadata().is_err() {
        return Ok(());
    }
    let file = file.display();
    let text = format!(
        "{file} is there already: --force writes another, and keeps this one as {file}~; another \
         name writes beside it"
    );
    Err(Failure::input(text))
}

/// Writes what a file of version 0.1 meant.
fn from_old(old: &Path, file: &Path) -> Outcome {
    let text = check::read(old)?;
    let before = since::before(&text, &old.display().to_string())?;
    let mut head = format!(
        "{} from {}, a file of version 0.1.\n# What has changed since, and is as it was in this \
         file; without its line each is as it is today:\n",
        since::MADE,
        old.display()
    );
    for change in &before.changes {
        let _ = writeln!(head, "#   {change}");
    }
    let config = RouterConfig::parse(&before.file.to_string(), "evenkeel init --from")?;
    let kept = save::write(file, &format!("{head}\n{}", config.short_text()), has_key(&config))?;
    let mut text = format!("{} written: it means what {} meant\n", file.display(), old.display());
    if let Some(kept) = kept {
        let _ = writeln!(text, "what was in it is in {}", kept.display());
    }
    for change in &before.changes {
        let _ = writeln!(text, "  {change}");
    }
    if before.changes.is_empty() {
        text += "  nothing that it leaves out has changed\n";
    }
    text += "also new: a start is refused where a firewall, translation or IPsec of this machine \
             would be passed by (`bypass` of [router]), and keys of tunnels in a file that all can \
             read\n";
    print(&(text + &format!("\nnext:  evenkeel check {}\n", file.display())))
}

fn usual_file() -> PathBuf {
    let of_the_service = Path::new(OF_THE_SERVICE);
    let installed = of_the_service.parent().is_some_and(Path::is_dir);
    if installed { of_the_service.to_owned() } else { "router.toml".into() }
}

/// What was written, and what to do now.
fn next(file: &Path, kept: Option<&Path>, answers: &Answers) -> String {
    let mut text = format!("{} written\n", file.display());
    if let Some(kept) = kept {
        let _ = writeln!(text, "what was in it is in {}", kept.display());
    }
    for interface in [Some(&answers.wan), answers.lan.as_ref()].into_iter().flatten() {
        let known = interfaces();
        if !known.contains(interface) {
            let known = known.join(", ");
            let _ = writeln!(text, "there is no interface {interface} here; there are: {known}");
        }
    }
    let of_the_service = file == Path::new(OF_THE_SERVICE);
    let start = if of_the_service {
        "systemctl enable --now evenkeel".to_owned()
    } else {
        format!("evenkeel run {}", file.display())
    };
    text + &format!("\nnext:  evenkeel check {}\nthen:  {start}\n", file.display())
}

fn interfaces() -> Vec<String> {
    let known = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let known = known.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut known: Vec<_> = known.filter(|name| name != "lo").collect();
    known.sort();
    known
}

/// The arguments' answers, and those of whoever is asked for the rest.
fn asked(
    args: &InitArgs,
    input: &mut impl BufRead,
    out: &mut impl Write,
) -> Result<Answers, Failure> {
    let mut ask = Ask { input, out };
    let place = match args.place.chosen() {
        Some(place) => place,
        None => ask.one(
            "What is this machine?\n  gateway  it routes already (home, office): only its line \
             gets \
             fair queues\n  bridge   it stands between router and modem, and routes nothing\n  \
             isp    \
             \x20 it routes between customers and the line: each customer the same\n  lab      two \
             ports, three classes to try disciplines with\n",
            "one of --gateway, --bridge, --isp, --lab",
            |text| Place::from_name(text).ok_or_else(|| suggest(text, &Place::NAMES)),
        )?,
    };
    let known = format!("Interfaces here: {}. ", interfaces().join(", "));
    let two = place != Place::Gateway;
    let (wan, lan) = match (&args.wan, &args.lan, two) {
        (Some(wan), lan, false) => (wan.clone(), lan.clone()),
        (Some(wan), Some(lan), true) => (wan.clone(), Some(lan.clone())),
        _ if two => ask.one(
            &format!("{known}Towards the line, and towards the others (two names): "),
            "--wan and --lan INTERFACE",
            |text| match text.split_whitespace().collect::<Vec<_>>()[..] {
                [wan, lan] if wan != lan => Ok((wan.to_owned(), Some(lan.to_owned()))),
                _ => Err("two names, not the same: eth0 eth1".to_owned()),
            },
        )?,
        _ => {
            ask.one(&format!("{known}Towards the line: "), "--wan INTERFACE", |text| {
                match text.split_whitespace().collect::<Vec<_>>()[..] {
                    [wan] => Ok((wan.to_owned(), None)),
                    _ => Err("one name: eth0".to_owned()),
                }
            })?
        }
    };
    let parse = |text: &str| rate(text).map_err(|error| error.to_string());
    let down = match args.down {
        Some(down) => down,
        None => ask.one("Rate of the line down (100Mbit/s): ", "--down RATE", parse)?,
    };
    let up = match args.up {
        Some(up) => up,
        None => ask.one("Rate of the line up (20Mbit/s): ", "--up RATE", parse)?,
    };
    if args.lan.is_some() && !two {
        return Err(Failure::input("--lan: a gateway has the queues of --wan only"));
    }
    Ok(Answers { place, wan, lan, down, up })
}

/// Who is asked what no argument says.
struct Ask<'a, R, W> {
    input: &'a mut R,
    out: &'a mut W,
}

impl<R: BufRead, W: Write> Ask<'_, R, W> {
    /// Asks until the answer can be read. `argument` says the same without a question.
    fn one<T>(
        &mut self,
        question: &str,
        argument: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, Failure> {
        loop {
            let _ = write!(self.out, "{question}").and_then(|()| self.out.flush());
            let mut line = String::new();
            let length = self.input.read_line(&mut line).unwrap_or(0);
            if length == 0 {
                let text = format!("nobody is there to be asked: give {argument}");
                return Err(Failure::input(text));
            }
            match read(line.trim()) {
                Ok(answer) => return Ok(answer),
                Err(why) => {
                    let _ = writeln!(self.out, "{:?}: {why}", line.trim());
                }
            }
        }
    }
}

/// A part of the line's rate, so that nothing waits beyond.
fn below(rate: BitRate) -> String {
    rate_text(BitRate(u64::try_from(u128::from(rate.0) * u128::from(PART) / 100).unwrap_or(rate.0)))
}

fn router_toml(answers: &Answers, args: &InitArgs) -> String {
    let Answers { place, wan, lan, down, up } = answers;
    let lan = lan.as_deref().unwrap_or_default();
    let (down_text, up_text) = (rate_text(*down), rate_text(*up));
    let overhead = overhead_toml(&args.overhead);
    let rated = |at: &str, rate: BitRate, rest: &str| {
        format!("[[link]]\nport = {}\nrate = \"{}\"\n{overhead}{rest}", quoted(at), below(rate))
    };
    let port = |name: &str, interface: &str, attach: &str| {
        format!(
            "[[port]]\nname = {}\ninterface = {}\nattach = \"{attach}\"\n",
            quoted(name),
            quoted(interface)
        )
    };
    let by = |fair: &str| {
        format!("\n[link.discipline]\nkind = \"pdrr\"\nfair = \"{fair}\"\n{BY_HOST}\n")
    };
    let made = since::MADE;
    let head = format!(
        "{made} for a line of {down_text} down and {up_text} up.\n\
         # Every key: `evenkeel reference router`. After a change: `evenkeel check` this file, \
             then\n\
         # `evenkeel ctl reload` it with `--confirm 30s`.\n\
         # Rates are {PART} % of the line's: then packets wait here, in short and fair queues, \
             and not \
         in the modem.\n\n"
    );
    let body = match place {
        Place::Gateway => format!(
            "# The interface towards the line. The kernel routes, filters and translates as \
             before; \
             only the queues are ours.\n{}\n# Up, what leaves by the interface. A rate alone \
             means: \
             each flow has a queue of its own, which an AQM keeps short.\n{}\n# Down, what arrives \
             there.\n{}",
            port("wan", wan, "inline"),
            rated("wan", *up, ""),
            rated("wan-ingress", *down, "")
        ),
        Place::Bridge => format!(
            "[router]\n# The kernel's bridge of the two interfaces is made if there is none, and \
             goes \
             on without us.\nmake_bridge = true\n\n# Towards the line, and towards the router: \
             every \
             frame that comes in by one leaves by the other.\n{}\n{}\n# Up: each host the same, \
             and \
             within it each of its flows. (Behind a translating router all are one host: fair = \
             \"flow\" then.)\n{}\n# Down.\n{}",
            port("wan", wan, "bridge"),
            port("lan", lan, "bridge"),
            rated("wan", *up, &by("source-flow")),
            rated("lan", *down, &by("destination-flow"))
        ),
        Place::Isp => format!(
            "# Towards the line, and towards the customers. Packets between them are routed here, \
             by \
             the kernel's routes;\n# a firewall or translation of this machine would be passed \
             by, and \
             the router then does not start: see `bypass`.\n{}\n{}\n# Up: each customer's address \
             the \
             same, and within it each of its flows.\n{}\n# Down.\n{}",
            port("wan", wan, "route"),
            port("lan", lan, "route"),
            rated("wan", *up, &by("source-flow")),
            rated("lan", *down, &by("destination-flow"))
        ),
        Place::Lab => lab(&port("wan", wan, "route"), &port("lan", lan, "route"), &rated, answers),
    };
    head + &body
}

fn lab(
    wan: &str,
    lan: &str,
    rated: &dyn Fn(&str, BitRate, &str) -> String,
    answers: &Answers,
) -> String {
    let weights = "\n[link.discipline]\n# Others: fifo, lct, pfq, pdrr, afan; `evenkeel ctl \
             discipline \
                   wan pdrr` changes it live.\nkind = \"wfq-altq\"\nweight = { rest = 100, video = \
                   500, voice = 1000 }\n";
    format!(
        "[router]\n# Cycles by stage and class in `evenkeel ctl show`.\ncycles = true\n# The same \
         tables at each start, so that runs can be compared. Not for others' traffic: they can be \
         foreseen.\nseed = 1\n\n{wan}\n{lan}\n# Classes are asked in this order; the first takes \
             what \
         no rule takes.\n[[class]]\nname = \"rest\"\n\n[[class]]\nname = \"video\"\nmatch = [{{ \
         protocol = \"udp\", destination_port = \"5000-5099\" }}]\n\n[[class]]\nname = \
         \"voice\"\nmatch = [{{ dscp = 46 }}]\n\n{}\n{}",
        rated("wan", answers.up, weights),
        rated("lan", answers.down, "")
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Args, Command};

    fn args(line: &str) -> InitArgs {
        let all = ["evenkeel", "init"].into_iter().chain(line.split_whitespace());
        match Args::try_parse_from(all).unwrap().command {
            Command::Init(args) => args,
            _ => unreachable!("init was asked for"),
        }
    }

    fn said(line: &str, input: &str) -> (Result<Answers, String>, String) {
        let mut out = Vec::new();
        let answers = asked(&args(line), &mut input.as_bytes(), &mut out);
        (answers.map_err(|failure| failure.text), String::from_utf8(out).unwrap())
    }

    #[test]
    fn questions_and_arguments_give_the_same_answers() {
        let (asked, out) = said("", "gatway\ngateway\neth0\n100\n100Mbit/s\n20Mbit/s\n");
        let (given, silent) = said("--gateway --wan eth0 --down 100Mbit/s --up 20Mbit/s", "");
        assert_eq!(asked.unwrap(), given.unwrap());
        assert!(out.contains("did you mean \"gateway\"") && out.contains("\"100\""), "{out}");
        assert!(silent.is_empty());
        let (asked, _) = said("--bridge --up 1Mbit/s", "eth0 eth0\neth0 eth1\n2Mbit/s\n");
        let asked = asked.unwrap();
        assert_eq!((asked.wan.as_str(), asked.lan.as_deref()), ("eth0", Some("eth1")));
        assert_eq!((asked.down, asked.up), (BitRate::from_mbps(2), BitRate::from_mbps(1)));
    }

    #[test]
    fn what_nobody_can_be_asked_is_named() {
        for (line, wanted) in [
            ("", "--gateway"),
            ("--gateway", "--wan"),
            ("--isp --wan eth0", "--lan"),
            ("--lab --wan a --lan b", "--down"),
            ("--lab --wan a --lan b --down 1Mbit/s", "--up"),
            ("--gateway --wan a --lan b --down 1Mbit/s --up 1Mbit/s", "--lan"),
        ] {
            let (answers, _) = said(line, "");
            assert!(answers.as_ref().is_err_and(|text| text.contains(wanted)), "{answers:?}");
        }
    }

    #[test]
    fn every_file_is_one_that_check_accepts_and_says_95_percent() {
        for place in ["gateway --wan eth0", "bridge --wan a --lan b", "isp --wan a --lan b"]
            .into_iter()
            .chain(["lab --wan a --lan b"])
        {
            for overhead in ["ethernet", "pppoe-ptm", "44"] {
                let line =
                    format!("--{place} --down 100Mbit/s --up 20Mbit/s --overhead {overhead}");
                let args = args(&line);
                let answers = asked(&args, &mut io::empty(), &mut io::sink()).unwrap();
                let text = router_toml(&answers, &args);
                let config = RouterConfig::parse(&text, "router.toml")
                    .unwrap_or_else(|errors| panic!("{errors}\n{text}"));
                let rates: Vec<_> = config.links.iter().filter_map(|link| link.core.rate).collect();
                assert_eq!(rates.len(), 2, "{text}");
                assert!(rates.contains(&BitRate::from_mbps(95)), "{text}");
                assert!(rates.contains(&BitRate::from_mbps(19)), "{text}");
                let up = config.link("wan").unwrap();
                assert_eq!(up.core.rate, Some(BitRate::from_mbps(19)), "up leaves by wan");
                assert_eq!(text.contains("overhead ="), overhead != "ethernet");
            }
        }
    }
}
