"""One chart a file: ``figures(report)`` gives what it shows of a report, ``chart(rows)`` draws."""
