"""How the runs of this worker ended, counted by queue and task until somebody takes the counts."""

from asyncq.events import Events, JobFinished
from asyncq.job import Done
from asyncq.outcome import Cancelled, Completed, Discarded, Outcome, Released, Retried, Snoozed

__all__ = ["Tally"]

_NAMES: dict[type[Outcome], str] = {
    Completed: "completed",
    Retried: "failed",
    Snoozed: "snoozed",
    Released: "interrupted",
    Cancelled: "cancelled",
    Discarded: "discarded",
}


class Tally:
    """Count."""

    def __init__(self, events: Events) -> None:
        self._counts: dict[tuple[str, str], Done] = {}
        events.subscribe(JobFinished, self._finished)

    def _finished(self, event: JobFinished) -> None:
        outcome = event.outcome
        if outcome is None:
            return
        done = self._of(event.job.queue, event.job.task)
        if outcome.__class__ is Completed:
            done.completed += 1
        else:
            name = _NAMES[type(outcome)]
            setattr(done, name, getattr(done, name) + 1)
        done.waited_seconds += event.waited
        done.ran_seconds += event.seconds

    def _of(self, queue: str, task: str) -> Done:
        done = self._counts.get((queue, task))
        if done is None:
            done = self._counts[queue, task] = Done(queue, task)
        return done

    def take(self) -> list[Done]:
        """Give what was counted since the last time, and begin anew."""
        taken, self._counts = list(self._counts.values()), {}
        return taken

    def give_back(self, taken: list[Done]) -> None:
        """Add what was taken and not used."""
        for each in taken:
            done = self._of(each.queue, each.task)
            for name in Done.FIGURES:
                setattr(done, name, getattr(done, name) + getattr(each, name))
