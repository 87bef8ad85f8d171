"""The page: one HTML file that needs nothing beside it.

::

    figures ─ page.py ─ page.html, page.css, page.js, timeline.js ─▶ one file
"""
