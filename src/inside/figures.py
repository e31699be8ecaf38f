# SPDX-License-Identifier: Apache-2.0
"""Figures for whom nobody watches: each one that is shown is kept, as /tmp/figure-1.png, figure-2.png, ...

A matplotlib backend. It is found in the place of matplotlib's own example of one, "template", and drawn by Agg.
"""
import os
import warnings

import matplotlib
from matplotlib._pylab_helpers import Gcf
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg

MOST = 64  # as many files as a run hands back


def new_file():
    """The next name that is free: a file of the script's stays as it is, and a fork counts, too."""
    for number in range(1, MOST + 1):
        try:
            path = "/tmp/figure-%d.png" % number
            return path, open(path, "xb")
        except FileExistsError:
            pass
    return None, None


class FigureManager(FigureManagerBase):
    """A window that is a file."""
    path = None  # once it was shown

    def show(self):
        """Figure.show() and pyplot.show(); the window stays open, what is changed later is kept when it is closed."""
        if self.path is None or self.canvas.figure.stale:
            self.keep()

    def destroy(self):
        if self.path is not None and self.canvas.figure.stale:
            self.keep()
        super().destroy()

    def keep(self):
        """Not to fail: without a screen, show() does nothing at all."""
        try:
            if self.path is None:
                self.path, file = new_file()
                if self.path is None:
                    return
            else:
                file = open(self.path, "wb")
            with file:
                self.write(file)
        except Exception as e:
            if self.path is not None:
                try:
                    os.unlink(self.path)
                except OSError:
                    pass
                self.path = None
            warnings.warn("the figure is not kept: %s" % (e or type(e).__name__), stacklevel=5)

    def write(self, file):
        self.canvas.print_png(file)
        if self.canvas.figure.stale:  # an animation begins when it is drawn the first time
            file.seek(0)
            file.truncate()
            self.canvas.print_png(file)


class FigureCanvas(FigureCanvasAgg):
    manager_class = FigureManager


def show(*, block=None):
    """Every open figure; when nobody goes on working meanwhile, whoever looks at them closes them in the end."""
    for manager in Gcf.get_all_fig_managers():
        manager.show()
    if block or (block is None and not matplotlib.is_interactive()):
        Gcf.destroy_all()
