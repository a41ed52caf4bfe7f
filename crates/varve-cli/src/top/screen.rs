//! What is done, on a screen that is drawn anew with each sample.

use super::activity::{Activity, Sample};
use super::keys::{Choice, LISTS, List};
use super::lines;
use crate::answer::printable;
use crate::session::Session;
use crate::table::Table;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::Paragraph;
use std::time::Duration;
use tokio::time::Instant;
use varve_api::{Code, Failure, Health};

/// How long to wait for a key before the time of the next sample is checked.
const KEY_WAIT: Duration = Duration::from_millis(100);
/// Most problems, and most jobs, that are shown beside a list.
const ASIDE_MAX: usize = 4;

/// The terminal, which is as it was once this is dropped.
struct Screen(ratatui::DefaultTerminal);

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows a sample each `every` until the user quits. A daemon that cannot be reached is asked again.
pub(super) async fn show(session: &Session, first: Sample, every: Duration) -> Result<(), Failure> {
    let mut screen = Screen(ratatui::try_init().map_err(|error| unusable(&error))?);
    let mut activity = Activity::between(&first, &first);
    let (mut before, mut choice, mut trouble, mut next) =
        (first, Choice::default(), None, Instant::now() + every);
    while !choice.quits {
        screen
            .0
            .draw(|frame| choice = draw(frame, &activity, choice, trouble.as_ref()))
            .map_err(|error| unusable(&error))?;
        if event::poll(KEY_WAIT).map_err(|error| unusable(&error))?
            && let Event::Key(key) = event::read().map_err(|error| unusable(&error))?
            && key.is_press()
        {
            choice = choice.after(key);
        }
        if Instant::now() >= next {
            next = Instant::now() + every;
            match Sample::take(session).await {
                Ok(now) => {
                    activity = Activity::between(&before, &now);
                    (before, trouble) = (now, None);
                }
                Err(failure) => trouble = Some(failure),
            }
        }
    }
    Ok(())
}

fn unusable(error: &std::io::Error) -> Failure {
    Failure::new(Code::FileUnusable, format!("the terminal cannot be used: {error}"))
        .help("varve top --count 1 prints lines")
}

/// Draws everything; the choice, with how many rows there are and fit.
fn draw(frame: &mut Frame<'_>, activity: &Activity, choice: Choice, trouble: Option<&Failure>) -> Choice {
    let problems = problems(activity, trouble);
    let jobs = activity.jobs.len().min(ASIDE_MAX);
    let jobs_height = if jobs == 0 { 0 } else { jobs + 1 };
    let heights = [1, problems.len(), 1].map(|height| Constraint::Length(height as u16));
    let [head, attention, lists, list, below, keys] = Layout::vertical([
        heights[0],
        heights[1],
        heights[2],
        Constraint::Min(2),
        Constraint::Length(jobs_height as u16),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let health = Style::new().fg(if activity.health == Health::Ok { Color::Green } else { Color::Red });
    frame.render_widget(Line::styled(lines::head(activity), health), head);
    frame.render_widget(Paragraph::new(Text::from(problems)), attention);
    frame.render_widget(names(choice.list), lists);
    let rows = render(frame, list, &table(activity, choice.list), choice.first);
    if jobs > 0 {
        render(frame, below, &lines::jobs(&activity.jobs[..jobs]), 0);
    }
    let help = "q ends   1-4, Tab: another list   Up, Down, Page: rows";
    frame.render_widget(Line::styled(help, Style::new().add_modifier(Modifier::DIM)), keys);
    let page = usize::from(list.height.saturating_sub(1)).max(1);
    Choice { rows, page, first: choice.first.min(rows.saturating_sub(page)), ..choice }
}

/// What is not as it should be, the daemon's absence first.
fn problems(activity: &Activity, trouble: Option<&Failure>) -> Vec<Line<'static>> {
    let style = Style::new().fg(Color::Yellow);
    let line = |text: String| Line::styled(printable(&text).into_owned(), style);
    let absent = trouble.map(|failure| line(format!("{} (asked again)", failure.message)));
    let wrong = activity
        .attention
        .iter()
        .map(|problem| line(format!("{}: {problem}; {}", problem.severity, problem.help)));
    absent.into_iter().chain(wrong).take(ASIDE_MAX).collect()
}

/// The names of the lists with their keys, the chosen one in relief.
fn names(chosen: List) -> Line<'static> {
    let style = |list: List| match list == chosen {
        true => Style::new().add_modifier(Modifier::REVERSED),
        false => Style::new(),
    };
    let name = |(index, list): (usize, List)| {
        [Span::styled(format!(" {} {list:?} ", index + 1), style(list)), Span::raw(" ")]
    };
    LISTS.into_iter().enumerate().flat_map(name).collect()
}

fn table(activity: &Activity, list: List) -> Table {
    match list {
        List::Volumes => lines::volumes(&activity.volumes),
        List::Exports => lines::exports(&activity.exports),
        List::Disks => lines::disks(&activity.disks),
        List::Pools => lines::pools(&activity.pools),
    }
}

/// Draws the headings of a table and its rows from `first` on; how many rows there are.
fn render(frame: &mut Frame<'_>, area: Rect, table: &Table, first: usize) -> usize {
    let mut lines = table.lines(usize::from(area.width)).into_iter();
    let head = lines.next().map(|head| Line::styled(head, Style::new().add_modifier(Modifier::BOLD)));
    let count = lines.len();
    let rows = lines.skip(first).map(|line| Line::raw(printable(&line).into_owned()));
    frame.render_widget(Paragraph::new(head.into_iter().chain(rows).collect::<Vec<_>>()), area);
    count
}

#[cfg(test)]
mod tests {
    use super::super::activity::tests::{sample, traffic};
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    const WIDTH: u16 = 99;

    /// The lines that are drawn on a screen of ten of them, and how many rows of the list fit.
    fn drawn(activity: &Activity, choice: Choice, trouble: Option<&Failure>) -> (Vec<String>, usize) {
        let mut terminal = Terminal::new(TestBackend::new(WIDTH, 10)).expect("in memory");
        let mut drawn = choice;
        terminal.draw(|frame| drawn = draw(frame, activity, choice, trouble)).expect("in memory");
        let buffer = terminal.backend().buffer();
        let line =
            |y: u16| (0..WIDTH).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        ((0..10).map(line).collect(), drawn.page)
    }

    #[test]
    fn the_screen_shows_rates_problems_and_as_many_rows_as_fit() {
        let begun = Instant::now();
        let names: Vec<String> = (0..30).map(|index| format!("v{index:02}")).collect();
        let at = |reads: u64| {
            let counts =
                |(index, name): (usize, &String)| (name.clone(), traffic(reads * index as u64, 0, 0));
            names.iter().enumerate().map(counts).collect::<Vec<_>>()
        };
        let sampled = |after: u64, reads: u64| {
            let volumes = at(reads);
            let volumes: Vec<_> =
                volumes.iter().map(|(name, counts)| (name.as_str(), counts.clone())).collect();
            sample(begun, after, 5, &volumes)
        };
        let activity = Activity::between(&sampled(0, 0), &sampled(1, 10));
        let (lines, page) = drawn(&activity, Choice::default(), None);
        assert!(lines[0].starts_with("health: ok  read 17.0 MiB/s (4350/s)"), "{lines:?}");
        assert_eq!(lines[1], " 1 Volumes   2 Exports   3 Disks   4 Pools");
        assert!(lines[2].starts_with("VOLUME ") && lines[3].starts_with("data/v29 "), "{lines:?}");
        assert_eq!((page, lines[8].split(' ').next()), (6, Some("data/v24")));
        assert!(lines[9].starts_with("q ends"), "{lines:?}");
        let below = Choice { first: 24, ..Choice::default() };
        assert!(drawn(&activity, below, None).0[8].starts_with("data/v00"));
        let absent = Failure::new(Code::NoDaemon, "no daemon \u{1b}[2J");
        let (lines, page) = drawn(&activity, Choice::default(), Some(&absent));
        assert_eq!((lines[1].as_str(), page), ("no daemon \\u{1b}[2J (asked again)", 5));
        let (lines, _) = drawn(&activity, Choice { list: List::Exports, ..Choice::default() }, None);
        assert_eq!(
            [lines[2].as_str(), &lines[3]],
            [
                "EXPORT  DOOR  VOLUME            READ  WRITE  READS/s  WRITES/s  FLUSHES/s  DISCARDS/s  ERRORS/s",
                "e-v29   nbd   data/v29     1.1 MiB/s      -      290         -          -           -         -",
            ],
            "there is no room for the clients"
        );
    }
}
