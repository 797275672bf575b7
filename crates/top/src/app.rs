//! What is on the terminal, and what keys do.

use std::path::Path;

use evenkeel_control::rates::RouterRates;
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row as TableRow, Table};

use crate::lists::{Listing, View};
use crate::rows::{self, HEADINGS, Order, Row};
use crate::words::{part, per_second};

/// Widths of the columns behind the names.
const WIDTHS: [u16; 8] = [12, 8, 12, 8, 8, 10, 10, 8];

/// What is shown.
#[derive(Debug)]
pub(crate) struct App {
    socket: String,
    router: String,
    rates: RouterRates,
    /// Why there is nothing new.
    silent: Option<String>,
    view: View,
    /// What was told of the view, where it is a list.
    listing: Option<Listing>,
    order: Order,
    /// By which of its numbers a list is ordered.
    column: usize,
    reversed: bool,
    filter: String,
    /// Keys go into the filter.
    typing: bool,
    first: usize,
    /// Which window of a recording this is, in words.
    recorded: Option<String>,
}

impl App {
    pub(crate) fn new(socket: &Path) -> Self {
        Self {
            socket: socket.display().to_string(),
            router: String::new(),
            rates: RouterRates::default(),
            silent: None,
            view: View::default(),
            listing: None,
            order: Order::Sent,
            column: 0,
            reversed: false,
            filter: String::new(),
            typing: false,
            first: 0,
            recorded: None,
        }
    }

    pub(crate) fn window(&mut self, router: String, rates: RouterRates) {
        (self.router, self.rates, self.silent) = (router, rates, None);
    }

    /// A window of a recording.
    pub(crate) fn recorded(&mut self, rates: RouterRates, which: String) {
        (self.rates, self.recorded) = (rates, Some(which));
    }

    /// What a router told of a view, which may be another one by now.
    pub(crate) fn listed(&mut self, view: View, listing: Option<Listing>) {
        if view == self.view {
            self.listing = listing;
        }
    }

    pub(crate) fn view(&self) -> View {
        self.view
    }

    /// Whether keys go into the filter.
    pub(crate) fn is_typing(&self) -> bool {
        self.typing
    }

    pub(crate) fn silent(&mut self, text: String) {
        self.silent = Some(text);
    }

    /// Does what a key says; whether it says that this should end.
    pub(crate) fn pressed(&mut self, key: KeyEvent) -> bool {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && key.code == KeyCode::Char('c') {
            return true;
        }
        if self.typing {
            match key.code {
                KeyCode::Enter => self.typing = false,
                KeyCode::Esc => (self.typing, self.filter) = (false, String::new()),
                KeyCode::Backspace => drop(self.filter.pop()),
                KeyCode::Char(c) if !control => self.filter.push(c),
                _ => {}
            }
            self.first = 0;
            return false;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            // A recording knows links and classes.
            KeyCode::Tab if self.recorded.is_none() => {
                (self.view, self.listing) = (self.view.next(), None);
                (self.column, self.first) = (0, 0);
            }
            KeyCode::Char('s') if self.view == View::Classes => self.order = self.order.next(),
            KeyCode::Char('s') => self.column += 1,
            KeyCode::Char('r') => self.reversed = !self.reversed,
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Down => self.first += 1,
            KeyCode::Up => self.first = self.first.saturating_sub(1),
            KeyCode::PageDown => self.first += 20,
            KeyCode::PageUp => self.first = self.first.saturating_sub(20),
            KeyCode::Home => self.first = 0,
            _ => {}
        }
        false
    }

    pub(crate) fn draw(&mut self, frame: &mut Frame<'_>) {
        let links = rows::links(&self.rates);
        // Links take a third at most.
        let most = (frame.area().height / 3).max(2);
        let height = u16::try_from(links.len() + 1).unwrap_or(u16::MAX).min(most);
        let [head, above, gap, below, foot] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(height),
            Constraint::Length(1),
            Constraint::Min(2),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(Paragraph::new(self.head()), head);
        frame.render_widget(table(&links, None), above);
        frame.render_widget(Paragraph::new(""), gap);
        let rows = if self.view == View::Classes {
            self.draw_classes(frame, below)
        } else {
            self.draw_list(frame, below)
        };
        frame.render_widget(Paragraph::new(self.foot(rows)), foot);
    }

    /// The first of so many rows that is shown, at most the last that fills the area.
    fn scrolled(&mut self, rows: usize, area: Rect) -> usize {
        let fit = usize::from(area.height.saturating_sub(1));
        self.first = self.first.min(rows.saturating_sub(fit));
        self.first
    }

    /// Returns how many there are.
    fn draw_classes(&mut self, frame: &mut Frame<'_>, area: Rect) -> usize {
        let classes = rows::classes(&self.rates, self.order, self.reversed, &self.filter);
        let first = self.scrolled(classes.len(), area);
        frame.render_widget(table(&classes[first..], Some((self.order, self.reversed))), area);
        classes.len()
    }

    /// Returns how many there are.
    fn draw_list(&mut self, frame: &mut Frame<'_>, area: Rect) -> usize {
        let Some(listing) = self.listing.take() else {
            let text = format!("{} are asked for ...", self.view.name());
            frame.render_widget(Paragraph::new(text), area);
            return 0;
        };
        let rows = listing.ordered(self.column, self.reversed, &self.filter);
        let first = self.scrolled(rows.len(), area);
        let table = list(&listing, &rows[first..], (self.column, self.reversed));
        frame.render_widget(table, area);
        let count = rows.len();
        self.listing = Some(listing);
        count
    }

    fn head(&self) -> Line<'_> {
        if let Some(why) = &self.silent {
            let style = Style::new().add_modifier(Modifier::REVERSED);
            return Line::styled(format!("NO ANSWER, trying again: {why}"), style);
        }
        if self.rates.length_s == 0.0 {
            return Line::raw(format!("{}: the first window comes ...", self.socket));
        }
        let lost: f64 = self.rates.dropped_before.values().sum();
        let router = self.recorded.as_ref().unwrap_or(&self.router);
        let text = format!(
            "{}: up {:.0} s, {} of the buffers in use, {} dropped before links, {} lost by the \
             kernel",
            router,
            self.rates.uptime_s,
            part(self.rates.buffers_used),
            per_second(lost),
            per_second(self.rates.ring_loss_pps)
        );
        Line::styled(text, Style::new().add_modifier(Modifier::BOLD))
    }

    fn foot(&self, rows: usize) -> Line<'_> {
        if self.typing {
            return Line::raw(format!("filter: {}_   Enter keeps it, Esc clears it", self.filter));
        }
        let filter = if self.filter.is_empty() {
            String::new()
        } else {
            format!(" with \"{}\"", self.filter)
        };
        let other = match self.recorded {
            Some(_) => "left right space time".to_owned(),
            None => format!("tab {}", self.view.next().name()),
        };
        let order = match (&self.listing, self.view) {
            (_, View::Classes) => self.order.name(),
            (Some(listing), _) => listing.column(self.column).0,
            (None, _) => "...",
        };
        let reversed = if self.reversed { ", reversed" } else { "" };
        Line::raw(format!(
            "{rows} {}{filter} by {order}{reversed}   s sort  r reverse  / filter  arrows scroll  \
             {other}  q quit",
            self.view.name()
        ))
    }
}

/// A table; the column that it is ordered by has an arrow.
fn table<'a>(rows: &[Row], order: Option<(Order, bool)>) -> Table<'a> {
    let headings = HEADINGS.map(|name| match order {
        Some((order, reversed)) if order.name() == name => {
            Cell::from(format!("{name} {}", if reversed { "^" } else { "v" }))
        }
        _ => Cell::from(name),
    });
    let body = rows.iter().map(|row| {
        let style = if row.is_link { Modifier::BOLD } else { Modifier::empty() };
        let cells = row.cells().into_iter().enumerate().map(|(at, cell)| {
            let line = Line::from(cell);
            Cell::from(if at < 2 { line } else { line.right_aligned() })
        });
        TableRow::new(cells).style(Style::new().add_modifier(style))
    });
    let names = [Constraint::Min(6), Constraint::Min(8)];
    let numbers = WIDTHS.map(Constraint::Length);
    Table::new(body, names.into_iter().chain(numbers))
        .header(TableRow::new(headings).style(Style::new().add_modifier(Modifier::UNDERLINED)))
}

/// A table of a list; the column that it is ordered by has an arrow.
fn list<'a>(listing: &Listing, rows: &[&[String]], order: (usize, bool)) -> Table<'a> {
    let (by, _) = listing.column(order.0);
    let headings = listing.headings.iter().map(|name| {
        let arrow = if order.1 { "^" } else { "v" };
        Cell::from(if *name == by { format!("{name} {arrow}") } else { (*name).to_owned() })
    });
    let names = listing.names;
    let body = rows.iter().map(|row| {
        TableRow::new(row.iter().enumerate().map(|(at, cell)| {
            let line = Line::from(cell.clone());
            Cell::from(if at < names { line } else { line.right_aligned() })
        }))
    });
    let widths = (0..listing.headings.len()).map(|at| match at {
        0 => Constraint::Min(20),
        _ if at < names => Constraint::Max(18),
        _ => Constraint::Length(12),
    });
    Table::new(body, widths)
        .header(TableRow::new(headings).style(Style::new().add_modifier(Modifier::UNDERLINED)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::tests::rates;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn screen(app: &mut App, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| app.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let cell = |x, y| buffer.cell((x, y)).map_or(" ", |cell| cell.symbol()).to_owned();
        (0..height).map(|y| (0..width).map(|x| cell(x, y)).collect::<String>()).collect()
    }

    fn press(app: &mut App, keys: &str) -> bool {
        keys.chars().any(|c| app.pressed(KeyEvent::from(KeyCode::Char(c))))
    }

    fn app() -> App {
        let mut app = App::new(Path::new("/run/x.sock"));
        let rates = RouterRates { length_s: 1.0, uptime_s: 77.0, ..rates() };
        app.window("edge".to_owned(), rates);
        app
    }

    #[test]
    fn links_stand_above_their_classes_and_keys_order_and_filter_these() {
        let mut app = app();
        let lines = screen(&mut app, 100, 20);
        assert!(lines[0].contains("edge: up 77 s"), "{lines:#?}");
        assert!(lines[2].starts_with("wan") && lines[2].contains("19.0 Mbit/s"), "{lines:#?}");
        assert!(lines[5].contains("sent v"), "{lines:#?}");
        assert!(lines[6].starts_with("lan") && lines[6].contains("17.0 Mbit/s"), "{lines:#?}");
        assert!(!press(&mut app, "r"));
        let lines = screen(&mut app, 100, 20);
        assert!(lines[6].contains("voice") && lines[19].contains("reversed"), "{lines:#?}");
        assert!(!press(&mut app, "r/rest"));
        app.pressed(KeyEvent::from(KeyCode::Enter));
        let lines = screen(&mut app, 100, 20);
        assert!(lines[19].contains("2 classes with \"rest\" by sent"), "{lines:#?}");
        assert!(!press(&mut app, "s"));
        assert!(screen(&mut app, 100, 20)[5].contains("offered v"));
        assert!(press(&mut app, "q"));
    }

    #[test]
    fn tab_goes_on_to_flows_and_subscribers_and_what_is_late_is_not_shown() {
        let mut app = app();
        let tab = KeyEvent::from(KeyCode::Tab);
        app.pressed(tab);
        let lines = screen(&mut app, 120, 20);
        assert!(lines[5].starts_with("flows are asked for") && lines[2].starts_with("wan"));
        // What was asked for before the key comes behind it.
        app.listed(View::Classes, None);
        app.listed(View::Flows, Some(crate::lists::tests::flows()));
        let lines = screen(&mut app, 120, 20);
        assert!(lines[5].contains("sent v") && lines[6].starts_with("10.0.0.1>a"), "{lines:#?}");
        assert!(lines[19].contains("2 flows by sent") && lines[19].contains("tab subscribers"));
        assert!(!press(&mut app, "s"));
        let lines = screen(&mut app, 120, 20);
        assert!(lines[5].contains("packets v") && lines[6].starts_with("10.0.0.2>b"), "{lines:#?}");
        assert!(!press(&mut app, "/0.1"));
        app.pressed(KeyEvent::from(KeyCode::Enter));
        assert!(screen(&mut app, 120, 20)[19].contains("1 flows with \"0.1\" by packets"));
        app.pressed(tab);
        app.listed(View::Flows, Some(crate::lists::tests::flows()));
        assert!(screen(&mut app, 120, 20)[5].starts_with("subscribers are asked for"));
        for (width, height) in [(1, 1), (20, 3), (5, 60)] {
            screen(&mut app, width, height);
        }
        app.recorded(rates(), "10:00".to_owned());
        app.pressed(tab);
        assert_eq!(app.view(), View::Subscribers);
    }

    #[test]
    fn letters_of_a_filter_are_no_commands_and_escape_clears_it() {
        let mut app = app();
        assert!(!press(&mut app, "/qsr"));
        assert!(screen(&mut app, 100, 20)[19].contains("filter: qsr_"));
        assert!(!app.pressed(KeyEvent::from(KeyCode::Esc)));
        assert!(screen(&mut app, 100, 20)[19].contains("3 classes by sent"));
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert!(app.pressed(interrupt));
    }

    #[test]
    fn a_router_that_is_gone_is_said_and_small_terminals_are_survived() {
        let mut app = app();
        app.silent("no router listens".to_owned());
        assert!(screen(&mut app, 100, 20)[0].contains("NO ANSWER"));
        for (width, height) in [(1, 1), (20, 3), (300, 2), (5, 60)] {
            screen(&mut app, width, height);
        }
        for _ in 0..50 {
            app.pressed(KeyEvent::from(KeyCode::PageDown));
        }
        assert!(screen(&mut app, 100, 8).iter().any(|line| line.contains("rest")));
    }
}
